# SPDX-License-Identifier: Apache-2.0
"""A training run as a cell of a sweep: repeatable, within its budget, and different in every repetition."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from ggdp.reproduction.calibrated_training import calibrated_cell

SETTINGS = {
    "beta": 2.0,
    "epsilon": 2.0,
    "clip_norm": 0.5,
    "learning_rate": 0.5,
    "batch_size": 256,
    "steps": 24,
    "delta": 1e-6,
}


def test_a_cell_repeats_itself_and_another_repetition_differs():
    first, again, other = (calibrated_cell("digits", SETTINGS, repeat).result() for repeat in (0, 0, 1))
    assert first == again
    assert first["accuracy"] != other["accuracy"]
    assert first["noise_multiplier"] == other["noise_multiplier"]
    assert 1.99 < first["epsilon"] <= 2.0
    assert first["steps"] == 24
