# SPDX-License-Identifier: Apache-2.0
"""docs/opacus.md: its code runs."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "opacus.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # torch's, on account of Opacus's hooks
@pytest.mark.filterwarnings("ignore:Secure RNG turned off")  # what Opacus's own engine says of itself
def test_every_block_of_the_page_runs_and_what_it_asserts_holds():
    assert len(BLOCKS) == 3
    for block in BLOCKS:
        exec(compile(block, "docs/opacus.md", "exec"), {})


def test_the_lengths_named_lose_a_batch_in_opacus():
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    short = [
        n for n in range(1, 106) if len(UniformWithReplacementSampler(num_samples=9, sample_rate=1 / n)) < n
    ]
    assert short == [93, 99, 105]
