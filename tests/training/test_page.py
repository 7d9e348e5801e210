# SPDX-License-Identifier: Apache-2.0
"""docs/training.md: the figures of its table are what the library says."""

import re
from pathlib import Path

import pytest

from ggdp import calibrate_scale

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([\d.]+), ([\d.]+|matched) \| (exact|certified).* \| ([\d.]+) \|$", PAGE, re.MULTILINE
)


@pytest.mark.parametrize(("beta", "norm", "known", "std"), ROWS)
def test_the_noise_that_a_row_of_the_table_names_is_what_calibration_finds(beta, norm, known, std):
    norm = norm if norm == "matched" else float(norm)
    found = calibrate_scale(
        beta=float(beta), epsilon=2.0, delta=1e-6, rate=0.01, steps=2000, norm=norm, dimension=25_000
    )
    assert found.noise.std == pytest.approx(float(std), abs=6e-4)
    assert (known == "certified") == found.achieved.method.startswith("certified")


def test_the_table_has_its_eight_rows():
    assert len(ROWS) == 8
