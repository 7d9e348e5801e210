# SPDX-License-Identifier: Apache-2.0
"""docs/training.md: the figures of its table are what the library says."""

import re
from pathlib import Path

import pytest

from ggdp import AdditiveNoise, Composed, GeneralizedGaussian, PoissonSampled, account

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ([\d.]+), ([\d.]+|matched) \| (exact|certified).* \| ([\d.]+) \|$", PAGE, re.MULTILINE
)


@pytest.mark.parametrize(("beta", "norm", "known", "std"), ROWS)
def test_the_noise_that_a_row_of_the_table_names_is_the_least_that_meets_its_target(beta, norm, known, std):
    """Noise a little larger meets the target of the page, and noise a little smaller does not."""
    norm = norm if norm == "matched" else float(norm)
    least, most = (
        account(
            Composed(
                PoissonSampled(
                    AdditiveNoise(
                        GeneralizedGaussian.from_std(float(beta), float(std) + change),
                        norm=norm,
                        dimension=25_000,
                    ),
                    rate=0.01,
                ),
                times=2000,
            )
        ).epsilon(delta=1e-6)
        for change in (-6e-4, 6e-4)
    )
    assert most.upper <= 2.0 < least.upper
    assert (known == "certified") == most.method.startswith("certified")


def test_the_table_has_its_eight_rows():
    assert len(ROWS) == 8
