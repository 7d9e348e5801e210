# SPDX-License-Identifier: Apache-2.0
import json
import math

import pytest

from ggdp import GeneralizedGaussian


def test_json_is_one_object_with_every_fact(ggdp):
    done = ggdp("noise", "--beta", 1.5, "--scale", 2, "--json")
    (facts,) = json.loads(done.out)["results"]
    noise = GeneralizedGaussian(1.5, 2.0)
    assert done.code == 0
    assert done.err == ""
    for name in ("beta", "scale", "mean", "std", "variance", "kurtosis", "entropy", "fisher_information"):
        assert facts[name] == getattr(noise, name)
    assert noise.tail_weight(facts["exceeded_with_prob_1e-9"]) == pytest.approx(1e-9, rel=1e-12)


@pytest.mark.parametrize(
    ("option", "value", "scale"),
    [
        ("--scale", 3.0, 3.0),
        ("--noise-multiplier", 2.0, 2.0 * math.sqrt(2.0)),
        ("--std", 1.0, math.sqrt(2.0)),
    ],
)
def test_one_noise_can_be_named_three_ways(ggdp, option, value, scale):
    (facts,) = json.loads(ggdp("noise", "--beta", 2, option, value, "--json").out)["results"]
    assert facts["scale"] == pytest.approx(scale, rel=1e-15)


def test_the_multiplier_is_taken_times_the_sensitivity(ggdp):
    done = ggdp("noise", "--beta", 2, "--noise-multiplier", 2, "--sensitivity", 0.5, "--json")
    (facts,) = json.loads(done.out)["results"]
    assert facts["std"] == pytest.approx(1.0, rel=1e-15)
    assert facts["noise_multiplier"] == pytest.approx(2.0, rel=1e-15)


def test_without_json_people_get_a_table(ggdp):
    done = ggdp("noise", "--beta", 2, "--std", 1)
    assert done.code == 0
    assert "fisher information" in done.out
    assert "│" in done.out
