# SPDX-License-Identifier: Apache-2.0
"""Models with the habits of ordinary code are clipped right, or refused."""

import pytest

from training.whole_models import (
    in_place_models,
    layers_models,
    losses_models,
    mixing_models,
    parameters_models,
    passes_models,
    randomness_models,
    shared_rows_models,
    structure_models,
)
from training.whole_models.harness import Case, check

TABLES = (
    in_place_models,
    layers_models,
    losses_models,
    mixing_models,
    parameters_models,
    passes_models,
    randomness_models,
    shared_rows_models,
    structure_models,
)
CASES = [case for table in TABLES for case in table.CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_clipped_sum_is_that_of_single_examples_or_the_model_is_refused(case: Case) -> None:
    check(case)
