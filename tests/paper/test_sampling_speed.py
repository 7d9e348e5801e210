# SPDX-License-Identifier: Apache-2.0
"""The speed claim: verdicts on the paper's sampler that follow the times; times that name their machine."""

import copy

import pytest

from ggdp_paper.experiment import Agreement
from ggdp_paper.figures import sampling_speed
from ggdp_paper.record import measured

SETTINGS = {"betas": [1.0, 2.0], "draws": 500, "rounds": 3, "measured": "sampling_h200"}
MACHINE = {"cpu": "An Old Processor", "numpy": "1.0", "scipy": "1.1"}


@pytest.fixture(scope="module")
def numbers():
    (cell,) = sampling_speed.EXPERIMENT.cells(SETTINGS)
    return sampling_speed.EXPERIMENT.numbers(SETTINGS, [cell.result()])


def made_up(scipy, *, ours=1.0, published=None, returns="numpy.ndarray", settings=SETTINGS):
    """Times in nanoseconds where NumPy's Gaussian takes one; the published sampler as a multiple of randn."""
    times = {sampling_speed.GAUSSIAN: [1.0] * 3, sampling_speed.OURS: [ours] * 3, sampling_speed.SCIPY: scipy}
    result = {"machine": MACHINE, "scipy returns": returns, "rows": [{"beta": 1.5, **times}]}
    found = copy.deepcopy(sampling_speed.EXPERIMENT.numbers(settings, [result]))
    if published is not None:
        milliseconds = found["device"]["milliseconds"]
        milliseconds["published, Gamma-based"] = published * milliseconds["torch.randn"]
    return found


def verdict(key, numbers, settings=SETTINGS):
    return sampling_speed.EXPERIMENT.findings(settings, numbers)[key].agreement


def test_every_sampler_is_timed_at_every_exponent(numbers):
    for row, beta in zip(numbers["rows"], SETTINGS["betas"], strict=True):
        assert row["beta"] == beta
        assert min(row["nanoseconds"].values()) > 0.0
        for name, ratio in row["ratios"].items():
            low, high = row["quartiles"][name]
            assert low <= ratio <= high


@pytest.mark.parametrize(
    ("scipy", "published", "expected"),
    [
        (1.3, 1.3, Agreement.AGREES),
        (1.4, 1.4, Agreement.DIFFERS),
        (1.3, 20.0, Agreement.PARTLY),
        (6.0, 1.3, Agreement.PARTLY),
    ],
)
def test_the_ratio_is_that_of_the_published_method(scipy, published, expected):
    for ours in (0.5, 9.0):  # ours is another sampler: it changes nothing
        assert verdict("ratio", made_up([scipy] * 3, ours=ours, published=published)) is expected


def test_rounds_on_both_sides_of_the_limit_tell_nothing():
    settings = SETTINGS | {"measured": "nowhere"}
    found = made_up([1.0, 1.3, 3.0], settings=settings)
    assert verdict("ratio", found, settings) is Agreement.UNDECIDED
    assert verdict("scipy", found, settings) is Agreement.UNDECIDED


@pytest.mark.parametrize(("scipy", "expected"), [(1.3, Agreement.DIFFERS), (1.4, Agreement.AGREES)])
def test_scipy_takes_too_long_above_the_ratio_of_the_paper(scipy, expected):
    assert verdict("scipy", made_up([scipy] * 3)) is expected


@pytest.mark.parametrize(
    ("scipy", "returns", "expected"),
    [
        (5.0, "numpy.ndarray", Agreement.AGREES),
        (5.0, "torch.Tensor", Agreement.PARTLY),
        (1e-6, "numpy.ndarray", Agreement.PARTLY),
        (1e-6, "torch.Tensor", Agreement.DIFFERS),
    ],
)
def test_scipy_is_ill_suited_where_it_draws_in_main_memory_and_slower_than_a_gpu(scipy, returns, expected):
    assert verdict("device", made_up([scipy] * 3, ours=1e9, returns=returns)) is expected


def test_our_own_sampler_is_a_note_and_no_verdict():
    found = made_up([5.0] * 3, ours=0.25)
    assert "0.25 to 0.25 times" in found["notes"][0]
    assert "0.591 ms" in found["notes"][1]


def test_times_name_the_machine_they_were_taken_on(numbers):
    assert numbers["machine"] == sampling_speed.machine()
    found = made_up([5.0] * 3)
    for finding in sampling_speed.EXPERIMENT.findings(SETTINGS, found).values():
        assert MACHINE["cpu"] in finding.found
    (picture,) = sampling_speed.EXPERIMENT.pictures(SETTINGS, found).values()
    assert MACHINE["cpu"] in picture.axes[0].get_title(loc="left")


def test_another_machine_has_another_cell(monkeypatch):
    (here,) = sampling_speed.EXPERIMENT.cells(SETTINGS)
    monkeypatch.setattr(sampling_speed, "machine", lambda: MACHINE)
    (there,) = sampling_speed.EXPERIMENT.cells(SETTINGS)
    assert here.digest != there.digest


def test_without_a_record_of_a_gpu_nothing_is_said_about_one():
    assert measured("nowhere") is None
    settings = SETTINGS | {"measured": "nowhere"}
    found = made_up([1.0] * 3, settings=settings)
    assert found["device"] is None
    assert verdict("device", found, settings) is Agreement.UNDECIDED
    assert len(found["notes"]) == 1
    (picture,) = sampling_speed.EXPERIMENT.pictures(settings, found).values()
    assert len(picture.axes) == 1


def test_the_picture_shows_cpu_and_device(numbers):
    (picture,) = sampling_speed.EXPERIMENT.pictures(SETTINGS, numbers).values()
    assert [bool(axes.get_xlabel()) for axes in picture.axes] == [True, True]
