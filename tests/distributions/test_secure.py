# SPDX-License-Identifier: Apache-2.0
"""The secure generator: the right keystream, never twice, never saved."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from ggdp.distributions.secure import SecureGenerator, secure_generator
from keystreams import CHACHA_VECTORS, PHILOX_VECTORS, chacha20_words, philox_words

KEY = bytes(range(32))
LEVEL = 1e-4


def at(key, counter, stream_words):
    step, origin = stream_words
    return SecureGenerator.restore_state(
        {"key": key.hex(), "step": step, "origin": origin, "next_block": counter}
    )


@pytest.mark.parametrize("name", CHACHA_VECTORS)
def test_keystream_is_that_of_rfc_8439(name):
    vector = CHACHA_VECTORS[name]
    generator = at(vector.key, vector.long_counter, vector.stream_words)
    assert generator.bytes(64) == vector.block


def test_keystream_encrypts_the_sunscreen_text_of_rfc_8439_section_2_4_2():
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    expected = bytes.fromhex(
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b357"
        "1639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d"
    )
    keystream = at(KEY, 1, (0x4A000000, 0)).bytes(len(text))
    assert bytes(a ^ b for a, b in zip(text, keystream, strict=True)) == expected


@pytest.mark.parametrize("name", CHACHA_VECTORS)
def test_the_plain_chacha20_used_for_kernels_meets_the_vectors_too(name):
    vector = CHACHA_VECTORS[name]
    key = np.concatenate([np.frombuffer(vector.key, "<u4"), np.array(vector.stream_words, np.uint32)])
    assert chacha20_words(key, vector.long_counter, 1).tobytes() == vector.block


@pytest.mark.parametrize("name", PHILOX_VECTORS)
def test_the_plain_philox_used_for_kernels_meets_the_vectors(name):
    counter, key, expected = PHILOX_VECTORS[name]
    words = philox_words(np.array([*key, *counter[2:]], np.uint32), counter[0] | counter[1] << 32, 1)
    assert tuple(words.tolist()) == expected


@pytest.mark.parametrize("first", [0, 5, 2**32 - 2, 2**40 + 7])
@pytest.mark.parametrize("domain", [0, 1, 2])
def test_blocks_of_the_library_are_those_of_the_plain_cipher_across_the_32_bit_carry(first, domain):
    generator = secure_generator(key=KEY).stream(rank=9, step=77)
    words = chacha20_words(generator.kernel_key(), first, 4, domain=domain)
    np.testing.assert_array_equal(generator.blocks(first, 4, domain=domain).view(np.uint32), words)


def test_successive_draws_read_the_keystream_on():
    one, other = secure_generator(key=KEY), secure_generator(key=KEY)
    np.testing.assert_array_equal(np.concatenate([one.words(8), one.words(16)]), other.words(24))


def test_no_two_threads_get_the_same_block():
    generator = secure_generator(key=KEY)
    with ThreadPoolExecutor(8) as pool:
        drawn = np.concatenate(list(pool.map(generator.words, [8] * 2000)))
    assert np.unique(drawn).size == drawn.size


def test_generators_from_the_operating_system_differ():
    assert secure_generator().bytes(32) != secure_generator().bytes(32)


def test_streams_of_ranks_and_steps_never_meet():
    root = secure_generator(key=KEY)
    streams = [root.stream(rank=rank, step=step) for rank in range(8) for step in range(8)]
    drawn = np.concatenate([stream.words(256) for stream in [root, *streams]])
    assert np.unique(drawn).size == drawn.size


def test_a_rank_gets_the_same_stream_every_time():
    assert secure_generator(key=KEY).stream(rank=3).bytes(16) == secure_generator(key=KEY).stream(
        rank=3
    ).bytes(16)


def test_a_stream_is_not_split_again():
    with pytest.raises(ValueError, match="stream must be called on the generator that holds the key"):
        secure_generator().stream(rank=1).stream(rank=2)


@pytest.mark.parametrize(("name", "rank", "step"), [("rank", -1, 0), ("rank", 2**24, 0), ("step", 0, 2**32)])
def test_ranks_and_steps_that_do_not_fit_are_refused(name, rank, step):
    with pytest.raises(ValueError, match=f"{name} must be a whole number in"):
        secure_generator().stream(rank=rank, step=step)


@pytest.mark.parametrize("key", [b"short", "0" * 32, 7])
def test_a_key_of_the_wrong_kind_is_refused(key):
    with pytest.raises(ValueError, match="key must be 32 bytes"):
        secure_generator(key=key)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_neither_pickled_nor_copied(duplicate):
    with pytest.raises(TypeError, match="not pickled, copied or saved"):
        duplicate(secure_generator())


def test_it_prints_without_its_key():
    assert KEY.hex() not in repr(secure_generator(key=KEY))
    assert str(list(KEY)[5:9]) not in repr(secure_generator(key=KEY))


def test_state_is_given_to_whoever_asks_and_the_stream_goes_on_from_it():
    generator = secure_generator(key=KEY)
    generator.words(100)
    restored = SecureGenerator.restore_state(generator.export_state())
    assert restored.bytes(64) == generator.bytes(64)


def test_after_a_fork_the_child_takes_a_new_key(monkeypatch):
    generator = secure_generator()
    before = generator.export_state()["key"]
    monkeypatch.setattr("ggdp.distributions.secure.os.getpid", lambda: -1)
    generator.bytes(1)
    assert generator.export_state()["key"] != before


def test_after_a_fork_a_key_of_the_users_is_refused(monkeypatch):
    generator = secure_generator(key=KEY)
    monkeypatch.setattr("ggdp.distributions.secure.os.getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="carried into another process"):
        generator.bytes(1)


def test_uniforms_are_uniform_and_near_misses_are_not():
    uniforms = secure_generator(key=KEY).random(100_000)
    assert stats.kstest(uniforms, "uniform").pvalue > LEVEL
    assert stats.kstest(uniforms**1.02, "uniform").pvalue < LEVEL


def test_integers_are_uniform_on_a_span_that_is_no_power_of_two():
    drawn = secure_generator(key=KEY).integers(-3, 8, size=110_000)
    assert drawn.min() == -3
    assert drawn.max() == 7
    counts = np.bincount(drawn + 3)
    assert stats.chisquare(counts).pvalue > LEVEL
    # Taking the remainder of 4 bits by 11 would draw five of the values twice as often.
    assert stats.chisquare(counts, np.where(np.arange(11) < 5, 2, 1) / 16 * drawn.size).pvalue < LEVEL


def test_shapes_follow_size():
    generator = secure_generator(key=KEY)
    assert isinstance(generator.random(), float)
    assert isinstance(generator.integers(5), int)
    assert generator.random((2, 0)).shape == (2, 0)
    assert generator.integers(5, size=(2, 3)).shape == (2, 3)
    assert len(generator.bytes(65)) == 65


FORKS = """
import os, sys, threading
import ggdp.distributions.secure as secure

def in_child(work):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, work())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer
"""


def forked(script):
    """What a script prints that runs in an interpreter of its own, where forking disturbs nobody."""
    done = subprocess.run([sys.executable, "-c", FORKS + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@needs_fork
def test_two_threads_of_a_child_never_draw_the_same_keystream():
    repeated, children = forked("""
import time
urandom = os.urandom

def slowly(count):  # so that both threads are inside at once
    time.sleep(0.005)
    return urandom(count)

def two_threads():
    os.urandom = slowly
    start, drawn = threading.Barrier(2), {}
    def draw(name):
        start.wait()
        drawn[name] = generator.bytes(16)
    threads = [threading.Thread(target=draw, args=(name,)) for name in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return drawn[0] + drawn[1]

repeated = 0
for _ in range(20):
    generator = secure.secure_generator()
    both = in_child(two_threads)
    assert len(both) == 32
    repeated += both[:16] == both[16:]
print(repeated, 20)
""")
    assert (repeated, children) == ("0", "20")


@needs_fork
@pytest.mark.parametrize("how", ["os.fork", "ctypes.PyDLL(None).fork"])
def test_parent_and_child_that_are_both_process_one_draw_different_noise(how):
    first, second, third = forked(f"""
import ctypes
os.getpid = secure.os.getpid = lambda: 1
os.fork = {how}
generator = secure.secure_generator()
generator.bytes(1)
child = in_child(lambda: generator.bytes(16))
print(child.hex(), generator.bytes(16).hex(), secure.secure_generator().bytes(16).hex())
""")
    assert len({first, second, third}) == 3


@needs_fork
def test_blocks_and_state_of_a_child_are_not_its_parents():
    child, parent, state, key, refusals = forked("""
generator, known = secure.secure_generator(), secure.secure_generator(key=bytes(32))
first = generator.reserve(1)
child = in_child(lambda: generator.blocks(first, 1).tobytes())
state = in_child(lambda: generator.export_state()["key"].encode())

def refused():
    count = 0
    blocks, stream = (lambda: known.blocks(0, 1)), (lambda: known.stream(rank=1))
    for ask in (blocks, stream, known.export_state, known.kernel_key):
        try:
            ask()
        except RuntimeError:
            count += 1
    return str(count).encode()

print(child.hex(), generator.blocks(first, 1).tobytes().hex(), state.decode(),
      generator.export_state()["key"], in_child(refused).decode())
""")
    assert child != parent
    assert state != key
    assert refusals == "4"


def test_a_stream_is_given_away_once():
    generator = secure_generator(key=KEY)
    generator.stream(rank=3)
    with pytest.raises(ValueError, match="got rank 3 and step 0 a second time"):
        generator.stream(rank=3)
    assert generator.stream(rank=3, step=1).bytes(16) != generator.stream(rank=4).bytes(16)
