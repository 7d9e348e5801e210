# SPDX-License-Identifier: Apache-2.0
"""Randomness nobody can predict: a ChaCha20 keystream keyed by the operating system.

The cipher is the one of RFC 8439, section 2.3, with the state's words 12 and 13 as one 64-bit block counter.
The `cryptography` package computes it on the CPU; the GPU kernels compute the same blocks from the same key.

Words 14 and 15 name the stream a block belongs to: the step, the rank, whether the stream was derived by
`stream`, and the domain (kernels read several parallel keystreams, see `ggdp.torch`). Two streams of one key
therefore never meet: they encrypt different inputs.
"""

import mmap
import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from ggdp import arguments

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher

KEY_BYTES = 32
BLOCK_BYTES = 64
NUM_DOMAINS = 3
_MAX_RANK = (1 << 24) - 1
_MAX_STEP = (1 << 32) - 1
_DERIVED = 1 << 7
_WIPE_ON_FORK = 18  # Linux's MADV_WIPEONFORK, which the mmap module does not name


class _Process:
    """A token of this process that no other process has, also not a child with the same process id.

    Three things show a child, and one is enough: Python's own hook after a fork, another process id, and a
    page of memory that Linux fills with zeros in every child, whoever made it (where that can be had).
    """

    def __init__(self) -> None:
        self._page: mmap.mmap | None = None
        try:
            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            page.madvise(_WIPE_ON_FORK)
            self._page = page
        except (AttributeError, OSError, TypeError, ValueError):
            pass  # another operating system, or an old kernel: the hook and the process id remain
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Become another process. After a fork the child has one thread, which runs this before all else."""
        self.lock = threading.Lock()  # the parent's may be held by a thread that the child does not have
        self._pid, self._token = os.getpid(), os.urandom(16)
        if self._page is not None:
            self._page[:16] = self._token

    def token(self) -> bytes:
        """The token; call it with the lock held."""
        wiped = self._page is not None and self._page[:16] != self._token
        if wiped or os.getpid() != self._pid:
            self._pid, self._token = os.getpid(), os.urandom(16)
            if self._page is not None:
                self._page[:16] = self._token
        return self._token


_PROCESS = _Process()


@dataclass
class _Keystream:
    """One key and how much of its keystream is handed out; a child that takes a new key makes a new one."""

    key: bytes
    process: bytes
    next_block: int = 0
    streams: set[tuple[int, int]] = field(default_factory=set)


def secure_generator(*, key: bytes | None = None) -> "SecureGenerator":
    """Return a generator keyed with 256 bits from the operating system.

    Args:
        key: 32 bytes to use instead. The noise is then as unpredictable as the key: whoever knows it can
            remove the noise. Meant for several ranks that share one key and take a `stream` each, and for
            tests.

    >>> secure_generator().random(3).shape
    (3,)
    """
    if key is None:
        return SecureGenerator(os.urandom(KEY_BYTES), rekey_after_fork=True)
    return SecureGenerator(key, rekey_after_fork=False)


class SecureGenerator:
    """A generator of unpredictable numbers, a ChaCha20 keystream read once; made by `secure_generator`.

    It offers what the library draws (`words`, `random`, `integers`, `bytes`), not all of
    `numpy.random.Generator`.

    Guarantees:
        * No keystream byte is handed out twice, also with several threads; nor is a stream of it.
        * After a fork the child takes a new key from the operating system, before any of its threads draws; a
          generator with a key of the user's refuses to go on, since parent and child would release the same
          noise. A child is told from its parent also where both have the same process id, as the first
          processes of nested namespaces do.
        * It is never pickled, copied or printed with its key. `export_state` is the only way to its state.
    """

    def __init__(self, key: bytes, *, rekey_after_fork: bool, step: int = 0, origin: int = 0) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise ValueError(
                f"key must be {KEY_BYTES} bytes; leave it out to take one from the operating system"
            )
        self._rekey_after_fork = rekey_after_fork
        self._step = step
        self._origin = origin  # Word 15 without its domain: rank << 8 | derived flag.
        _cipher(key, bytes(16))  # imports it here and now, where no two threads can do so at once
        with _PROCESS.lock:
            self._keystream = _Keystream(key, _PROCESS.token())

    def stream(self, *, rank: int, step: int = 0) -> "SecureGenerator":
        """Return the generator of `rank` at `step`: same key, a keystream disjoint from every other one.

        Ranks that share a key call this with their own rank; a restart from a saved key passes a new step.

        Raises:
            ValueError: this generator has given that stream away already: its noise would be drawn twice.
        """
        rank = arguments.whole("rank", rank, least=0, most=_MAX_RANK)
        step = arguments.whole("step", step, least=0, most=_MAX_STEP)
        if self._origin:
            raise ValueError(
                "stream must be called on the generator that holds the key, not on a stream of it"
            )
        with _PROCESS.lock:
            ours = self._in_this_process()
            if (rank, step) in ours.streams:
                raise ValueError(
                    f"rank and step must name a new stream, got rank {rank} and step {step} a second time, "
                    "which would repeat its noise; keep the stream that was returned, or pass another step"
                )
            ours.streams.add((rank, step))
        return SecureGenerator(ours.key, rekey_after_fork=False, step=step, origin=(rank << 8) | _DERIVED)

    def words(self, count: int) -> NDArray[np.int64]:
        """Return `count` independent uniform 64-bit words."""
        return self.keystream(8 * count).view(np.int64)[:count]

    def bytes(self, length: int) -> bytes:
        """Return `length` uniform bytes."""
        return self.keystream(arguments.whole("length", length, least=0))[:length].tobytes()

    def random(self, size: int | tuple[int, ...] | None = None) -> float | NDArray[np.float64]:
        """Return uniforms on the multiples of 2^-53 in [0, 1), as `numpy.random.Generator.random` does."""
        dims = _dims(size)
        uniform = (self.words(_count(dims)).view(np.uint64) >> np.uint64(11)).astype(np.float64)
        uniform *= 2.0**-53
        return float(uniform[0]) if size is None else uniform.reshape(dims)

    def integers(
        self, low: int, high: int | None = None, size: int | tuple[int, ...] | None = None
    ) -> int | NDArray[np.int64]:
        """Return integers uniform on [low, high), or on [0, low) when `high` is left out; no modulo bias."""
        low, high = (0, low) if high is None else (low, high)
        span = arguments.whole("high - low", high - low, least=1, most=1 << 62)
        dims = _dims(size)
        mask = np.int64((1 << (span - 1).bit_length()) - 1)
        drawn = np.empty(0, dtype=np.int64)
        while drawn.size < _count(dims):
            candidates = self.words(2 * _count(dims) + 8) & mask
            drawn = np.concatenate([drawn, candidates[candidates < span]])
        chosen = drawn[: _count(dims)] + low
        return int(chosen[0]) if size is None else chosen.reshape(dims)

    def keystream(self, length: int) -> NDArray[np.uint8]:
        """Return the next whole blocks that hold `length` bytes."""
        num_blocks = -(-length // BLOCK_BYTES)
        return self.blocks(self.reserve(num_blocks), num_blocks)

    def reserve(self, num_blocks: int) -> int:
        """Set `num_blocks` blocks of every domain aside for the caller and return the first one's number."""
        with _PROCESS.lock:
            ours = self._in_this_process()
            first = ours.next_block
            ours.next_block += num_blocks
        return first

    def blocks(self, first: int, num_blocks: int, *, domain: int = 0) -> NDArray[np.uint8]:
        """Return the bytes of blocks reserved before, from one of the parallel domains."""
        with _PROCESS.lock:
            key = self._in_this_process().key
        out = np.zeros(BLOCK_BYTES * num_blocks, dtype=np.uint8)
        stream = [self._step.to_bytes(4, "little"), (self._origin | domain).to_bytes(4, "little")]
        done = 0
        while done < num_blocks:
            # The library counts in 32 bits and refuses to carry, so a run ends where the high word moves on.
            run = min(num_blocks - done, (1 << 32) - (first + done) % (1 << 32))
            zeros = out[BLOCK_BYTES * done : BLOCK_BYTES * (done + run)].data
            nonce = b"".join([(first + done).to_bytes(8, "little"), *stream])
            _cipher(key, nonce).encryptor().update_into(zeros, zeros)
            done += run
        return out

    def kernel_key(self) -> NDArray[np.uint32]:
        """Return the ten words a GPU kernel needs: the key, then state words 14 and 15 of domain 0."""
        with _PROCESS.lock:
            key = self._in_this_process().key
        stream = np.array([self._step, self._origin], dtype="<u4")
        return np.concatenate([np.frombuffer(key, dtype="<u4"), stream])

    def export_state(self) -> dict[str, str | int]:
        """Return the state, key included, for whoever asks for it in so many words.

        A state that is restored twice gives the same noise twice, and the difference of two releases with
        equal noise is exact. Keep it as secret as the data.
        """
        with _PROCESS.lock:
            ours = self._in_this_process()
            fields = {"step": self._step, "origin": self._origin, "next_block": ours.next_block}
            return {"key": ours.key.hex(), **fields}

    @classmethod
    def restore_state(cls, state: dict[str, str | int]) -> "SecureGenerator":
        """Return a generator that goes on where `export_state` was called."""
        key, step, origin = bytes.fromhex(str(state["key"])), int(state["step"]), int(state["origin"])
        generator = cls(key, rekey_after_fork=False, step=step, origin=origin)
        generator._keystream.next_block = int(state["next_block"])
        return generator

    def _in_this_process(self) -> _Keystream:
        """The keystream, under a new key in a child; call it with the lock of the process held.

        Numbers of blocks go on where the parent's stood, so that blocks reserved before the fork and read
        after it are neither the parent's nor handed out again here.
        """
        ours, process = self._keystream, _PROCESS.token()
        if ours.process == process:
            return ours
        if not self._rekey_after_fork:
            raise RuntimeError(
                "this secure generator was carried into another process, where it would repeat its parent's "
                "noise; call secure_generator() there, or give each process its own stream(rank=...)"
            )
        self._keystream = _Keystream(os.urandom(KEY_BYTES), process, ours.next_block)
        return self._keystream

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a secure generator is not pickled, copied or saved: its key would let a reader undo the noise; "
            "make a new one with secure_generator(), or ask for export_state()"
        )

    def __repr__(self) -> str:
        return f"SecureGenerator(ChaCha20, {self._keystream.next_block} blocks drawn)"


def _cipher(key: bytes, nonce: bytes) -> "Cipher[None]":
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher(algorithms.ChaCha20(key, nonce), mode=None)


def _dims(size: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if size is None:
        return ()
    return (size,) if isinstance(size, int) else tuple(size)


def _count(dims: tuple[int, ...]) -> int:
    return int(np.prod(dims, dtype=np.int64))
