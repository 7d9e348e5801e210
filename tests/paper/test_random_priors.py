# SPDX-License-Identifier: Apache-2.0
"""papers/random_priors: images of random processes, what is learnt from them, and views of private images."""

import importlib
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
SCRIPTS = Path(__file__).parents[2] / "papers" / "random_priors"


@pytest.fixture(scope="module", autouse=True)
def scripts():
    """The scripts import each other as neighbours: their folder is on the path while they are tested."""
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))
    for name in ("random_images", "prior", "features", "train"):
        sys.modules.pop(name, None)


def _module(name):
    return importlib.import_module(name)


def _generator(seed):
    return torch.Generator().manual_seed(seed)


def test_images_follow_from_the_seed_alone_and_no_two_are_alike():
    draw = _module("random_images").random_images
    images = draw(12, _generator(1))
    assert images.shape == (12, 3, 64, 64)
    assert images.dtype == torch.uint8
    assert torch.equal(images, draw(12, _generator(1)))
    assert len({image.numpy().tobytes() for image in images}) == 12
    assert bool((images.float().std(dim=(1, 2, 3)) > 5.0).all())


def test_the_loss_is_that_of_wang_and_isola_written_out():
    points = torch.nn.functional.normalize(
        torch.randn(2, 6, 4, generator=_generator(2), dtype=torch.float64), dim=2
    )

    def uniformity(of):
        pairs = torch.pdist(of) ** 2
        return torch.log(torch.exp(-2.0 * pairs).mean())

    alignment = (points[0] - points[1]).norm(dim=1).pow(2).mean()
    expected = alignment + (uniformity(points[0]) + uniformity(points[1])) / 2.0
    assert _module("prior").loss_of(*points).item() == pytest.approx(expected.item(), rel=1e-12)


def test_changed_colours_keep_the_brightness():
    turn, strength = torch.tensor([0.7, -0.3]), torch.tensor([1.4, 0.0])
    matrices = _module("prior")._recoloured(turn, strength)
    brightness = torch.tensor([0.299, 0.587, 0.114])
    assert torch.allclose(brightness @ matrices, brightness.expand(2, 3), atol=1e-4)
    grey = matrices[1] @ torch.tensor([0.2, 0.9, 0.4])
    assert float(grey.max() - grey.min()) < 1e-2  # the constants of the transform have three digits


def test_views_are_the_image_its_mirror_and_windows_of_the_reflected_image():
    images = torch.randint(256, (5, 3, 32, 32), dtype=torch.uint8, generator=_generator(3))
    views = _module("features").views_of(images, 4, _generator(4))
    assert torch.equal(views[:, 0], images)
    assert torch.equal(views[:, 1], images.flip(-1))
    padded = torch.nn.functional.pad(images.float(), (4,) * 4, mode="reflect").to(torch.uint8)
    for image, seen in zip(padded, views[:, 2:].unbind(0), strict=True):
        windows = [image[:, row : row + 32, column : column + 32] for row in range(9) for column in range(9)]
        windows += [window.flip(-1) for window in windows]
        for view in seen:
            assert any(torch.equal(view, window) for window in windows)


def test_what_phase_one_writes_is_gone_on_with(tmp_path):
    prior, file = _module("prior"), tmp_path / "prior.pt"
    for _ in range(2):
        prior.learn(file, seconds=0.05, device="cpu", pairs=4, pool=12, width=1, compiled=False)
    kept = torch.load(file)
    assert len(kept["history"]) == 2
    network = prior.load(file, "cpu")
    assert len(network) == prior.PARTS
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 8, 8)


def test_the_epsilon_of_the_record_is_that_of_another_accountant():
    """The steps of the run, and the release that standardises its features."""
    dp = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    record = json.loads((SCRIPTS / "records" / "cnn.json").read_text())
    settings, phase = record["settings"], record["phases"]["network"]
    step = dp.PoissonSampledDpEvent(settings["batch"] / 50_000, dp.GaussianDpEvent(phase["noise multiplier"]))
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(step, phase["steps"])
    accountant.compose(dp.GaussianDpEvent(_module("train").STANDARDISING_NOISE))
    theirs = accountant.get_epsilon(settings["delta"])
    assert phase["epsilon"] <= 1.0
    assert phase["epsilon"] == pytest.approx(theirs, rel=2e-3)
