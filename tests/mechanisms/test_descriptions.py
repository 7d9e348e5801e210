# SPDX-License-Identifier: Apache-2.0
"""Contracts that every mechanism of the table keeps: plain, hashable, written and read back unchanged."""

import json
import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import MECHANISMS
from ggdp import (
    AdditiveNoise,
    Composed,
    GeneralizedGaussian,
    Laplace,
    PoissonSampled,
    SphericalGeneralizedGaussian,
    SphericalNoise,
)
from ggdp.mechanisms import from_dict, to_dict
from ggdp.mechanisms.custom import GaussianMixtureNoise, OutcomeProbabilities
from parameters import betas, scales

every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS.keys())
STEP = AdditiveNoise(Laplace(scale=1.0))


@every_mechanism
def test_json_round_trip_gives_an_equal_mechanism(mechanism):
    text = json.dumps(mechanism.to_dict(), allow_nan=False)
    assert from_dict(json.loads(text)) == mechanism
    assert type(mechanism).from_dict(json.loads(text)) == mechanism


DESCRIBED = [
    OutcomeProbabilities((0.75, 0.25, 0.0), (0.2, 0.3, 0.5)),
    GaussianMixtureNoise((0.9, 0.1), (0.0, 0.5), (1.0, 4.0), shift=-1.5),
    SphericalNoise(SphericalGeneralizedGaussian(1.5, 2.0, 10), sensitivity=0.5),
    AdditiveNoise(SphericalGeneralizedGaussian(1.5, 2.0, 10, power=-0.5), sensitivity=0.5),
]


@pytest.mark.parametrize("mechanism", DESCRIBED, ids=lambda one: type(one).__name__)
def test_custom_mechanisms_that_are_plain_data_survive_json(mechanism):
    sampled = Composed([(PoissonSampled(mechanism, 0.1), 7), (STEP, 2), (mechanism, 1)])
    for one in (mechanism, sampled):
        assert type(one).from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False))) == one
    data = mechanism.to_dict()
    for name in data:
        with pytest.raises(ValueError, match=f"must have the field '{name}'"):
            from_dict({key: value for key, value in data.items() if key != name})
    with pytest.raises(ValueError, match=r"unknown fields \['colour'\]"):
        from_dict({**data, "colour": "red"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": (0.5, 0.6)}, "weights must sum to 1"),
        ({"stds": (1.0,)}, "must be of one length"),
        ({"stds": (1.0, 0.0)}, "stds must be"),
        ({"shift": 0.0}, "shift must not be 0"),
    ],
)
def test_a_mixture_of_gaussians_that_is_none_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(DESCRIBED[1], **change)


@every_mechanism
def test_mechanisms_are_keys_and_survive_pickling(mechanism):
    assert {mechanism: 1}[pickle.loads(pickle.dumps(mechanism))] == 1


@every_mechanism
def test_each_field_of_the_format_is_needed_and_no_other_is_taken(mechanism):
    data = to_dict(mechanism)
    for name in data:
        with pytest.raises(ValueError, match=f"must have the field '{name}'"):
            from_dict({key: value for key, value in data.items() if key != name})
    with pytest.raises(ValueError, match=r"unknown fields \['colour'\]"):
        from_dict({**data, "colour": "red"})


@settings(max_examples=60, deadline=None)
@given(
    beta=betas,
    scale=scales,
    sensitivity=st.floats(1e-6, 1e6),
    norm=st.sampled_from([None, 1.0, 2.0, math.inf]),
    rate=st.floats(1e-9, 1.0),
    times=st.integers(1, 10**9),
)
def test_any_mechanism_survives_json(beta, scale, sensitivity, norm, rate, times):
    noise = AdditiveNoise(GeneralizedGaussian(beta, scale), sensitivity, norm)
    mechanism = Composed([(PoissonSampled(noise, rate), times), (noise, 1)])
    assert from_dict(json.loads(json.dumps(to_dict(mechanism)))) == mechanism


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "data must be of type dict, got list"),
        ({"version": 2, "kind": "composed"}, "version must be 1, got 2"),
        ({"version": True, "kind": "composed"}, "version must be 1, got True"),
        (
            {"version": 1, "kind": "laplace"},
            "gaussian-mixture-noise, grid-noise, spherical-noise, spherical-power-noise, got 'laplace'",
        ),
        ({"version": 1, "kind": "composed", "parts": []}, "at least one step"),
        ({"version": 1, "kind": "composed", "parts": [7]}, "data must be of type dict, got int: 7"),
        (
            {
                "version": 1,
                "kind": "additive-noise",
                "noise": {"kind": "normal"},
                "sensitivity": 1,
                "norm": 1,
            },
            "kind of noise must be generalized-gaussian, got 'normal'",
        ),
        ({"version": 1, "kind": "poisson-sampled", "rate": 2.0, "mechanism": {"kind": "x"}}, "kind must be"),
    ],
    ids=str,
)
def test_what_this_version_does_not_know_is_refused(data, message):
    with pytest.raises(ValueError) as refusal:
        from_dict(data)
    assert message in str(refusal.value)


def test_a_class_reads_only_its_own_kind():
    with pytest.raises(ValueError, match="must describe AdditiveNoise, got kind 'composed'"):
        AdditiveNoise.from_dict(Composed(STEP, times=2).to_dict())


def test_composition_is_flat_and_counts_equal_steps_together():
    nested = Composed([(STEP, 2), (Composed([(STEP, 1), (PoissonSampled(STEP, 0.5), 3)], times=2), 5)])
    assert nested.parts == ((STEP, 12), (PoissonSampled(STEP, 0.5), 30))


def test_norm_defaults_to_beta():
    assert AdditiveNoise(GeneralizedGaussian(1.5, 1.0)).norm == 1.5
    assert AdditiveNoise(Laplace(1.0), norm=math.inf).norm == math.inf


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AdditiveNoise(3.0), "noise must be of type GeneralizedGaussian, got float: 3.0"),
        (
            lambda: AdditiveNoise(Laplace(1.0), sensitivity=0.0),
            "sensitivity must be a number in (0, inf), got 0.0",
        ),
        (lambda: AdditiveNoise(Laplace(1.0), norm=0.5), "norm must be a number in [1, inf]"),
        (lambda: AdditiveNoise(Laplace(1.0), norm=math.nan), "norm must be a number in [1, inf]"),
        (lambda: PoissonSampled(STEP, rate=0.0), "rate must be a number in (0, 1], got 0.0"),
        (lambda: PoissonSampled(STEP, rate=1.01), "rate must be a number in (0, 1], got 1.01"),
        (
            lambda: PoissonSampled(Composed(STEP), rate=0.1),
            "mechanism must be of type AdditiveNoise or CustomMechanism, got Composed",
        ),
        (lambda: PoissonSampled(PoissonSampled(STEP, 0.5), rate=0.1), "sample each step, then compose"),
        (lambda: Composed(STEP, times=0), "times must be a whole number >= 1, got 0"),
        (lambda: Composed(STEP, times=1.5), "times must be a whole number >= 1, got 1.5"),
        (lambda: Composed([]), "at least one step"),
        (lambda: Composed([STEP, STEP]), "must be a pair (mechanism, times), got AdditiveNoise"),
        (lambda: Composed([(STEP, True)]), "times must be a whole number >= 1, got True"),
        (
            lambda: Composed([("step", 1)]),
            "mechanism must be of type AdditiveNoise or PoissonSampled or Batched or Composed",
        ),
        (lambda: Composed(5), "or a list of pairs (mechanism, times)"),
    ],
)
def test_a_wrong_argument_is_refused_by_name_value_and_range(build, message):
    with pytest.raises(ValueError) as refusal:
        build()
    assert message in str(refusal.value)


def test_mechanisms_nested_thousands_deep_are_refused_with_a_reason():
    data = AdditiveNoise(Laplace(scale=2.0)).to_dict()
    data.pop("version")
    for _ in range(5000):
        data = {"kind": "composed", "parts": [{"mechanism": data, "times": 1}]}
    with pytest.raises(ValueError, match="at most 100 levels"):
        from_dict({"version": 1, **data})


@pytest.mark.parametrize("field", ["version", "kind", "noise", "sensitivity", "norm"])
@pytest.mark.parametrize("too_large", ["nested", "digits"])
def test_a_field_of_data_nested_or_long_without_end_is_refused_and_not_shown(field, too_large):
    value = 10**5000
    if too_large == "nested":
        for _ in range(5000):
            value = {"noise": value}
    with pytest.raises(ValueError, match=r"must .* too large to show|must have the field"):
        from_dict({**AdditiveNoise(Laplace(scale=2.0)).to_dict(), field: value})
