# SPDX-License-Identifier: Apache-2.0
"""Models with the habits of ordinary code are clipped right, or refused."""

import pytest

from training.whole_models.harness import Case, check
from training.whole_models.own_models import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_clipped_sum_is_that_of_single_examples_or_the_model_is_refused(case: Case) -> None:
    check(case)
