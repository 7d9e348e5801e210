# SPDX-License-Identifier: Apache-2.0
"""The speed claim: a verdict that follows the ratios, a record that is kept, a picture with quartiles."""

import pytest

from ggdp.reproduction import sampling_speed
from ggdp.reproduction.experiment import Agreement
from ggdp.reproduction.measured import measured

SETTINGS = {"betas": [1.0, 2.0], "draws": 500, "rounds": 3, "measured": "sampling_h200"}


@pytest.fixture(scope="module")
def numbers():
    (cell,) = sampling_speed.EXPERIMENT.cells(SETTINGS)
    return sampling_speed.EXPERIMENT.numbers(SETTINGS, [cell.result()])


def made_up(ratio):
    times = {
        sampling_speed.GAUSSIAN: [1.0] * 3,
        sampling_speed.OURS: [ratio] * 3,
        sampling_speed.SCIPY: [5.0] * 3,
    }
    return sampling_speed.EXPERIMENT.numbers(SETTINGS, [{"rows": [{"beta": 1.5, **times}]}])


def test_every_sampler_is_timed_at_every_exponent(numbers):
    for row, beta in zip(numbers["rows"], SETTINGS["betas"], strict=True):
        assert row["beta"] == beta
        assert min(row["nanoseconds"].values()) > 0.0
        for name, ratio in row["ratios"].items():
            low, high = row["quartiles"][name]
            assert low <= ratio <= high


@pytest.mark.parametrize(("ratio", "verdict"), [(1.29, Agreement.AGREES), (1.31, Agreement.DIFFERS)])
def test_the_verdict_follows_the_ratio(ratio, verdict):
    assert sampling_speed.EXPERIMENT.findings(SETTINGS, made_up(ratio))["ratio"].agreement is verdict


def test_without_a_record_of_a_gpu_nothing_is_said_about_one():
    assert measured("nowhere") is None
    settings = SETTINGS | {"measured": "nowhere"}
    found = sampling_speed.EXPERIMENT.numbers(settings, [{"rows": []}])
    assert found["device"] is None
    numbers = made_up(1.0) | {"device": None}
    assert sampling_speed.EXPERIMENT.findings(settings, numbers)["device"].agreement is Agreement.UNDECIDED
    (picture,) = sampling_speed.EXPERIMENT.pictures(settings, numbers).values()
    assert len(picture.axes) == 1


def test_the_picture_shows_cpu_and_device(numbers):
    (picture,) = sampling_speed.EXPERIMENT.pictures(SETTINGS, numbers).values()
    assert [bool(axes.get_xlabel()) for axes in picture.axes] == [True, True]
