# SPDX-License-Identifier: Apache-2.0
"""A release of preprocessing is made once: what a file holds is read, not released again."""

import json

import pytest
import torch

from ggdp_paper.tasks.standardisation import Standardisation, standardisation_kept_in

GUESS = Standardisation(torch.zeros(3), torch.ones(3))
FEATURES = torch.randn(40, 3, 2, 2, generator=torch.Generator().manual_seed(1))


def test_the_second_time_nothing_is_released(tmp_path):
    file = tmp_path / "new folder" / "preprocessing.json"
    first = standardisation_kept_in(file, FEATURES, GUESS, 2.0)
    again = standardisation_kept_in(file, FEATURES, GUESS, 2.0)
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.std, again.std)
    assert not torch.equal(standardisation_kept_in(None, FEATURES, GUESS, 2.0).mean, first.mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": 3.0}, r"noise_multiplier = 3\.0, got 2\.0"),
        ({"num_images": 41}, "num_images = 41, got 40"),
        ({"mean": None}, "cannot be read"),
        ({"channels": 4}, "channels = 4, got 3"),
    ],
)
def test_another_release_is_refused(tmp_path, change, message):
    file = tmp_path / "preprocessing.json"
    standardisation_kept_in(file, FEATURES, GUESS, 2.0)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ValueError, match=message):
        standardisation_kept_in(file, FEATURES, GUESS, 2.0)


def test_a_file_that_is_no_json_is_refused(tmp_path):
    file = tmp_path / "preprocessing.json"
    file.write_text("{")
    with pytest.raises(ValueError, match="give another folder"):
        standardisation_kept_in(file, FEATURES, GUESS, 2.0)
