# SPDX-License-Identifier: Apache-2.0
"""docs/tasks.md: its figures are what the library says."""

import re
from pathlib import Path

import pytest
import torch

from ggdp import epsilon
from ggdp_paper.record import measured
from ggdp_paper.tasks import TASKS, adult, digits, images, imdb
from ggdp_paper.tasks.standardisation import MEAN_CLIP, mechanism

PAGE = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()
MODELS = {"digits": digits, "adult": adult, "imdb": imdb, "cifar10": images, "svhn": images}


def test_the_table_lists_every_task_with_its_parameters():
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) \|$", PAGE, re.MULTILINE))
    assert set(rows) == set(TASKS)
    for name, parameters in rows.items():
        model = MODELS[name].build(torch.Generator().manual_seed(1))
        assert sum(tensor.numel() for tensor in model.parameters()) == int(parameters.replace(",", ""))


def test_the_share_of_the_budget_is_as_the_page_says():
    """A Gaussian release of noise multiplier s adds 1/s^2; the budget is the sum that costs epsilon = 1."""
    low, high = 3.0, 6.0
    for _ in range(8):
        middle = (low + high) / 2.0
        too_dear = epsilon(mechanism(1, middle), delta=1e-6).upper > 1.0
        low, high = (middle, high) if too_dear else (low, middle)
    assert (high / 32.0) ** 2 < 0.02
    assert 2.0 * (high / 8.0) ** 2 > 0.5


def test_the_error_of_a_mean_is_as_the_page_says():
    error = MEAN_CLIP * (2.0 * 243) ** 0.5 * 32.0 / 50_000
    assert error == pytest.approx(0.02, abs=0.005)


def test_the_accuracies_of_the_page_are_those_of_the_record():
    numbers = measured("table1_cifar10")["numbers"]
    rows = [row for row in numbers["rows"] if row["setting"] == "beta2"]
    for pattern, score in ((r"reaches (.*?) %", "accuracy"), (r"are right for (.*?) %", "mirrored_accuracy")):
        told = re.search(pattern, PAGE).group(1).split(" / ")
        assert told == [f"{100.0 * row[score]:.1f}" for row in rows]
    tried = {row["change"]: row["accuracy"] for row in numbers["tried"] if row["setting"] == "beta2"}
    told = re.search(r"from ([\d.]+) % to ([\d.]+) %", PAGE)
    assert list(told.groups()) == [f"{100.0 * tried[change]:.1f}" for change in ("order 2 in full", "")]
