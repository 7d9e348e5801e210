# SPDX-License-Identifier: Apache-2.0
"""docs/choosing-noise.md: its table is what the library says."""

import re
from pathlib import Path

import pytest

from ggdp import best_noise

PAGE = (Path(__file__).parents[2] / "docs" / "choosing-noise.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+), \((\S+), (\S+)\) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{row[2]}")
def test_a_row_of_the_table_is_what_the_library_says(row):
    steps, epsilon, delta, laplace, gaussian, least, beta = map(float, row)
    found = best_noise(steps=round(steps), epsilon=epsilon, delta=delta)
    for shown, value in ((laplace, found.laplace_loss), (gaussian, found.gaussian_loss), (least, found.loss)):
        assert float(f"{value:.4g}") == pytest.approx(shown, rel=1.1e-4)
    assert found.beta == pytest.approx(beta, abs=0.02)


def test_the_table_has_its_rows():
    assert len(ROWS) == 8
