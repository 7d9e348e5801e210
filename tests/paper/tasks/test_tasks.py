# SPDX-License-Identifier: Apache-2.0
"""Built-in tasks: small files in the published formats, made-up data, models, refusals."""

import contextlib
import functools
import pickle
import struct

import numpy as np
import pytest
import torch
from scipy.io import savemat

from ggdp_paper.tasks import TASKS, adult, held_out, image_files, images, load_task

PARAMETERS = {"digits": 6090, "adult": 4034, "imdb": 1_081_002, "cifar10": 187_210, "svhn": 187_210}
INPUTS = {"digits": (1, 8, 8), "adult": (123,), "imdb": (256,), "cifar10": (243, 8, 8), "svhn": (243, 8, 8)}
ROWS = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, \
United-States, <=50K
52, ?, 209642, HS-grad, 9, Married-civ-spouse, ?, Husband, Black, Male, 0, 0, 45, ?, >50K
"""


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


@functools.cache
def made_up(name, seed=1):
    return load_task(name, synthetic=True, generator=generator(seed), rng=np.random.default_rng(seed))


@pytest.mark.parametrize("name", TASKS)
def test_made_up_data_has_the_shape_of_the_real_and_fits_the_model(name):
    task = made_up(name)
    model = task.build(generator())
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name]
    for part in (task.train, task.test):
        inputs, labels = part.tensors
        assert inputs.shape[1:] == INPUTS[name]
        assert labels.dtype == torch.int64
        scores = model(inputs[:3])
        assert scores.shape[0] == 3
        assert labels.max() < scores.shape[1]
    assert task.defaults.delta == 1e-6
    assert task.defaults.batch_size < task.num_examples


@pytest.mark.parametrize("name", ["digits", "adult", "imdb", "cifar10"])
def test_made_up_data_can_be_learnt(name):
    task = made_up(name)
    model = task.build(generator())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs, labels = task.train.tensors
    for step in range(8 if name == "imdb" else 30):
        some = torch.arange(len(labels)) % 4 == step % 4
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[some]), labels[some]).backward()
        optimizer.step()
    with torch.no_grad():
        right = model(task.test.tensors[0]).argmax(dim=1) == task.test.tensors[1]
    assert right.float().mean() > {"digits": 0.8, "adult": 0.8, "imdb": 0.8, "cifar10": 0.5}[name]


def test_weights_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, again, other = (made_up("imdb").build(generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    for one, two, three in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert not torch.equal(one, three)


def test_weights_follow_pytorchs_own_laws():
    ours = dict(images.build(generator()).named_parameters())
    theirs = dict(torch.nn.Sequential(torch.nn.Conv2d(243, 64, 3)).named_parameters())
    bound = (243 * 9) ** -0.5
    for found in (ours["0.weight"].detach(), theirs["0.weight"].detach()):
        assert found.abs().max() == pytest.approx(bound, rel=1e-3)
        assert found.std() == pytest.approx(bound / 3**0.5, rel=0.02)


def test_digits_are_embedded_and_split_by_a_fixed_rule():
    task = load_task("digits")
    assert (task.num_examples, len(task.test)) == (1437, 360)
    assert task.charged == () == task.caveats


@pytest.fixture
def adult_folder(tmp_path):
    (tmp_path / "adult.data").write_text(ROWS)
    (tmp_path / "adult.test").write_text("|1x3 Cross validator\n" + ROWS.replace("50K", "50K.") + "\n")
    return tmp_path


def test_adult_columns_are_the_values_of_adult_names(adult_folder):
    task = load_task("adult", data=adult_folder)
    rows, labels = task.train.tensors
    assert rows.shape == (2, 123)
    assert adult.WIDTH == 123
    assert rows.sum(dim=1).tolist() == [14.0, 11.0]  # one column of each attribute, none where it is unknown
    assert labels.tolist() == [0, 1]
    assert torch.equal(rows, task.test.tensors[0])
    assert torch.equal(labels, task.test.tensors[1])
    assert rows[0].nonzero().flatten()[:3].tolist() == [2, 10, 13]  # 36-45 years, state, weight up to 100,000


def test_adult_rows_do_not_touch_each_other(adult_folder):
    both = load_task("adult", data=adult_folder).train.tensors[0]
    (adult_folder / "adult.data").write_text(ROWS.splitlines()[1])
    assert torch.equal(load_task("adult", data=adult_folder).train.tensors[0], both[1:])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("Bachelors", "Bachelor", r"line 1 of .*adult.data.* education must be one of .* got 'Bachelor'"),
        ("39,", "", "expected 15 fields, got 14"),
        ("<=50K", "50K", "line 1"),
        (ROWS, "", "must hold rows of Adult"),
    ],
)
def test_rows_that_are_not_adult_are_refused(adult_folder, before, after, message):
    (adult_folder / "adult.data").write_text(ROWS.replace(before, after))
    with pytest.raises(ValueError, match=message):
        load_task("adult", data=adult_folder)


@pytest.fixture
def imdb_folder(tmp_path):
    texts = {"pos": "A great, GREAT film<br />indeed", "neg": "a bad film", "unsup": "films films films"}
    for split, kind in [
        ("train", "pos"),
        ("train", "neg"),
        ("test", "pos"),
        ("test", "neg"),
        ("train", "unsup"),
    ]:
        folder = tmp_path / "aclImdb" / split / kind
        folder.mkdir(parents=True)
        (folder / "0_9.txt").write_text(texts[kind])
    return tmp_path


def test_reviews_become_their_last_tokens(imdb_folder):
    task = load_task("imdb", data=imdb_folder)
    tokens, labels = task.train.tensors
    # By frequency, then by the alphabet: a 4, film 5, great 6, bad 7, indeed 8; 1 starts a review, 3 ends it.
    assert labels.tolist() == [0, 1]
    assert tokens[0, -5:].tolist() == [1, 4, 7, 5, 3]
    assert tokens[1, -7:].tolist() == [1, 4, 6, 6, 5, 8, 3]
    assert tokens[:, :249].sum() == 0
    assert "epsilon does not cover" in task.caveats[0]


def test_long_reviews_keep_their_end(imdb_folder):
    (imdb_folder / "aclImdb/train/neg/0_9.txt").write_text("bad " * 400 + "film")
    tokens = load_task("imdb", data=imdb_folder).train.tensors[0][0]
    assert tokens.shape == (256,)
    assert tokens.min() > 1
    assert tokens[-1] == 3


def test_another_vocabulary_reads_nothing_from_the_training_reviews(imdb_folder, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("film\nbad\n\nfilm\n")
    chosen = load_task("imdb", data=imdb_folder, vocabulary=words)
    assert chosen.train.tensors[0][0, -5:].tolist() == [1, 2, 5, 4, 3]
    assert chosen.caveats == ()
    unlabelled = load_task("imdb", data=imdb_folder, vocabulary="unlabelled")
    assert unlabelled.train.tensors[0][0, -5:].tolist() == [1, 2, 2, 2, 3]
    assert unlabelled.caveats == ()


def test_folders_without_reviews_are_refused(imdb_folder):
    (imdb_folder / "aclImdb/test/neg/0_9.txt").unlink()
    with pytest.raises(ValueError, match=r"expected reviews \*.txt in .*neg"):
        load_task("imdb", data=imdb_folder)


def image_bytes(number, seed):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (number, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, number)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"1" * 200_000, b'"' + b"1" * 200_000])
def test_a_damaged_file_of_adult_is_refused_by_its_name(tmp_path, content):
    for name in ("adult.data", "adult.test"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"adult\.data"):
        load_task("adult", data=tmp_path)


def write_cifar(folder, kind):
    """The same six batches in the python version (written as Python 2 did) or the binary version."""
    root = folder / f"cifar-10-batches-{kind}"
    root.mkdir()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        pixels, labels = image_bytes(2, seed)
        if kind == "py":
            batch = {b"data": pixels.reshape(2, -1), b"labels": labels.tolist(), b"batch_label": b"one"}
            (root / name).write_bytes(pickle.dumps(batch, protocol=2))
        else:
            rows = np.concatenate([labels[:, None].astype(np.uint8), pixels.reshape(2, -1)], axis=1)
            (root / f"{name}.bin").write_bytes(rows.tobytes())


def test_both_versions_of_cifar_give_the_same_task(tmp_path):
    found = {}
    for kind in ("py", "bin"):
        (tmp_path / kind).mkdir()
        write_cifar(tmp_path / kind, kind)
        found[kind] = load_task("cifar10", data=tmp_path / kind, rng=np.random.default_rng(1))
    for part in ("train", "test"):
        for one, two in zip(
            getattr(found["py"], part).tensors, getattr(found["bin"], part).tensors, strict=True
        ):
            torch.testing.assert_close(one, two, rtol=0.0, atol=0.0)
    assert found["py"].num_examples == 10
    assert found["py"].train.tensors[1][:2].tolist() == image_bytes(2, 0)[1].tolist()
    (charged,) = found["py"].charged
    assert (charged.dimension, charged.sensitivity, charged.norm) == (486, 1.0, 2.0)


def test_a_batch_that_would_run_code_is_refused(tmp_path):
    write_cifar(tmp_path, "py")
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(ValueError, match=r"arrays only: it holds an object of os\.system"):
        load_task("cifar10", data=tmp_path)


@pytest.mark.parametrize(
    "batch", [b"", b"\xa9", pickle.dumps(None), pickle.dumps({b"data": 3, b"labels": 4})]
)
def test_a_damaged_batch_is_told_in_plain_words(tmp_path, batch):
    write_cifar(tmp_path, "py")
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(batch)
    with pytest.raises(ValueError, match=r"test_batch' must be .*, arrays only: it is damaged$"):
        load_task("cifar10", data=tmp_path)


def test_a_device_in_the_place_of_a_file_is_not_read(tmp_path):
    (tmp_path / "train_32x32.mat").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"expected train_32x32\.mat in .*, which has no such file"):
        load_task("svhn", data=tmp_path)


class Forged:
    """Pickled as a call of this class with these arguments, and then of __setstate__."""

    def __init__(self, kind, arguments, state):
        self.parts = (kind, arguments, state)

    def __reduce__(self):
        return self.parts


RECONSTRUCT = np.zeros(1, np.uint8).__reduce__()[0]
FORGED_DTYPE = Forged(np.dtype, ("V8", False, True), (3, "|", None, ("a",), {"a": (1, 2)}, 2**40, 1, 255))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing of the kind",
        pickle.dumps({b"labels": [1]}),
        pickle.dumps({b"data": 3, b"labels": [1]}, protocol=2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.float64), b"labels": [1]}, protocol=2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10**30]}, protocol=2),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": "text"}, protocol=2),
        pickle.dumps(
            {b"data": Forged(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (2**40,), FORGED_DTYPE, False, b""))}
        ),
        b"\x80\x02]r\xff\xff\xff\xff.",  # asks for memory for four billion objects
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1]}, protocol=2)[:-40],
    ],
)
def test_a_damaged_or_forged_batch_is_refused_in_one_line(tmp_path, content):
    write_cifar(tmp_path, "py")
    path = tmp_path / "cifar-10-batches-py/data_batch_2"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be a batch of CIFAR-10 with data and labels") as refused:
        load_task("cifar10", data=tmp_path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("compressed", [False, True])
def test_the_arrays_of_a_matlab_file_are_those_that_scipy_wrote(tmp_path, compressed):
    pixels, labels = (
        np.arange(32 * 32 * 3 * 2, dtype=np.uint8).reshape(32, 32, 3, 2),
        np.array([[10.0], [3.0]]),
    )
    written = {"note": "text", "X": pixels, "y": labels, "cell": np.array([[1, "a"]], dtype=object)}
    savemat(tmp_path / "a.mat", written, do_compression=compressed)
    found = image_files._matlab(tmp_path / "a.mat")
    np.testing.assert_array_equal(found.pixels, pixels.transpose(3, 2, 0, 1))
    assert found.labels.tolist() == [0, 3]


def test_a_damaged_matlab_file_is_refused_wherever_it_is_cut_or_changed(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1))})
    good = path.read_bytes()
    for cut in (0, 5, 127, 130, 150, 200, 3000, len(good) - 30):
        path.write_bytes(good[:cut])
        with pytest.raises(ValueError, match=r"a\.mat' must be a MATLAB 5 file with the variables X and y"):
            image_files._matlab(path)
    rng = np.random.default_rng(1)
    for _ in range(300):  # with SciPy's reader some of these end Python
        content = bytearray(good)
        for place in rng.integers(120, 220, size=3):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        with contextlib.suppress(ValueError):
            image_files._matlab(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"abc", "records of 3073 bytes, got 3 bytes"),
        (struct.pack("B", 10) + bytes(3072), "labels from 0 to 9"),
        (b"", "at least one"),
    ],
)
def test_a_damaged_binary_batch_is_refused(tmp_path, content, message):
    write_cifar(tmp_path, "bin")
    (tmp_path / "cifar-10-batches-bin/data_batch_3.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_task("cifar10", data=tmp_path)


def test_svhn_calls_zero_ten(tmp_path):
    for name in ("train", "test"):
        pixels, _ = image_bytes(3, 7)
        content = {"X": pixels.transpose(2, 3, 1, 0), "y": np.array([[10], [1], [9]], dtype=np.uint8)}
        savemat(tmp_path / f"{name}_32x32.mat", content)
    task = load_task("svhn", data=tmp_path, rng=np.random.default_rng(1))
    assert task.train.tensors[1].tolist() == [0, 1, 9]
    assert task.train.tensors[0].shape == (3, 243, 8, 8)


@pytest.mark.parametrize(
    ("name", "file", "published"),
    [
        ("adult", "adult.data", "archive.ics.uci.edu"),
        ("imdb", "aclImdb", "ai.stanford.edu"),
        ("cifar10", "cifar-10-batches-py", "www.cs.toronto.edu"),
        ("svhn", "train_32x32.mat", "ufldl.stanford.edu"),
    ],
)
def test_missing_files_are_named_with_their_place_of_publication(tmp_path, name, file, published):
    for data, state in [
        (None, "data must be given for .*, a folder that holds"),
        (tmp_path, "has no such file"),
        (tmp_path / "no", "not exist"),
    ]:
        with pytest.raises(ValueError, match=state) as refused:
            load_task(name, data=data)
        assert file in str(refused.value)
        assert published in str(refused.value)


def test_what_cannot_be_asked_is_refused(tmp_path):
    with pytest.raises(ValueError, match="task must be one of digits, adult"):
        load_task("mnist")
    with pytest.raises(ValueError, match="generator must be given"):
        load_task("adult", synthetic=True)
    with pytest.raises(ValueError, match="exclude each other"):
        load_task("adult", synthetic=True, generator=generator(), data=tmp_path)
    with pytest.raises(ValueError, match="standardisation_noise must be a number"):
        load_task("cifar10", data=tmp_path, standardisation_noise=0.0)


def test_features_of_order_2_weigh_half():
    def features(weights):
        task = load_task(
            "cifar10",
            synthetic=True,
            generator=generator(),
            rng=np.random.default_rng(1),
            order_weights=weights,
        )
        return task.train.tensors[0]

    ratio = made_up("cifar10").train.tensors[0] / features((1.0, 1.0, 1.0))
    expected = torch.tensor([1.0] * 17 + [0.5] * 64).repeat(3).view(-1, 1, 1).expand_as(ratio)
    torch.testing.assert_close(ratio.nan_to_num(0.0), expected.where(~ratio.isnan(), 0.0))
    with pytest.raises(ValueError, match="order_weights must be a number"):
        features((1.0, 0.0, 1.0))


def test_images_beside_their_mirror_images_are_two_views_of_one_example():
    plain, both = (
        load_task(
            "cifar10",
            synthetic=True,
            generator=generator(3),
            rng=np.random.default_rng(3),
            views=views,
        )
        for views in (1, 2)
    )
    assert both.train.tensors[0].shape == (len(plain.train), 2, *plain.train.tensors[0].shape[1:])
    assert torch.equal(both.train.tensors[0][:, 0], plain.train.tensors[0])
    assert torch.equal(both.test.tensors[0], plain.test.tensors[0])
    assert (plain.views, both.views, both.charged) == (1, 2, plain.charged)
    score = held_out(both, 50)
    assert (len(score.train), len(score.test)) == (len(plain.train) - 50, 50)
    assert torch.equal(score.test.tensors[0], plain.train.tensors[0][-50:])
    assert torch.equal(score.mirrored.tensors[0], both.train.tensors[0][-50:, 1])
    with pytest.raises(ValueError, match="views must be 1 for svhn, got 2"):
        load_task("svhn", synthetic=True, generator=generator(3), views=2)
    with pytest.raises(ValueError, match=r"views must be 1, or 2 .*, for cifar10"):
        load_task("cifar10", synthetic=True, generator=generator(3), views=3)
