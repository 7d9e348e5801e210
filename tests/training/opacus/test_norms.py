# SPDX-License-Identifier: Apache-2.0
"""Norms and clip factors against exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from ggdp.training.opacus.norms import clip_factors, example_norms, joint_norm, weighted_sum

NORMS = [1.0, 1.33, 2.0, 3.0, 8.0, 64.0, math.inf]


def gradients(seed=0, num=7, scale=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(num, 5, 3), (num,), (num, 11)]
    return [scale * torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def loop_norm(rows, p):
    flat = np.concatenate([np.abs(row.double().numpy()).ravel() for row in rows])
    largest = flat.max()
    if math.isinf(p):
        return largest
    return largest * math.fsum((flat / largest) ** p) ** (1.0 / p) if largest else 0.0


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("scale", [1e-27, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_norms_equal_a_loop_over_single_examples(p, scale, dtype):
    drawn = gradients(scale=scale, dtype=dtype)
    found = example_norms(drawn, p)
    for index in range(7):
        expected = loop_norm([tensor[index] for tensor in drawn], p)
        assert found[index].item() == pytest.approx(expected, rel=2.0**-17)


@pytest.mark.parametrize("p", NORMS)
def test_rows_in_chunks_give_the_same_norms(p, monkeypatch):
    whole = example_norms(gradients(), p)
    monkeypatch.setattr("ggdp.training.opacus.norms._CHUNK", 16)
    assert torch.allclose(example_norms(gradients(), p), whole, rtol=2.0**-21, atol=0.0)


@pytest.mark.parametrize("p", NORMS)
def test_no_examples_have_no_norms_and_sum_to_zero(p):
    empty = gradients(num=0)
    found = example_norms(empty, p)
    assert found.shape == (0,)
    assert torch.equal(weighted_sum(clip_factors(found, 1.0, p), empty[0]), torch.zeros(5, 3))


@pytest.mark.parametrize("p", NORMS)
def test_a_zero_gradient_stays_zero(p):
    zeros = [torch.zeros(2, 3)]
    assert torch.equal(example_norms(zeros, p), torch.zeros(2, dtype=torch.float64))
    assert torch.equal(weighted_sum(clip_factors(torch.zeros(2), 1.0, p), zeros[0]), torch.zeros(3))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("p", NORMS)
def test_what_is_not_finite_shows_in_its_own_norm_alone(p, bad):
    drawn = gradients()
    drawn[2][3, 4] = bad
    finite = torch.isfinite(example_norms(drawn, p))
    assert not finite[3]
    assert finite.sum() == 6


@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 250.0])
def test_the_true_l1_norm_of_a_clipped_gradient_is_never_above_the_bound(clip_norm):
    """In exact arithmetic over the float32 numbers that are added to the sum."""
    for seed in range(20):
        drawn = gradients(seed, num=4, scale=10.0 ** (seed % 7 - 3))
        factors = clip_factors(example_norms(drawn, 1.0), clip_norm, 1.0)
        for index in range(4):
            alone = [weighted_sum(factors[index : index + 1], part[index : index + 1]) for part in drawn]
            total = sum(abs(Fraction(value)) for part in alone for value in part.flatten().tolist())
            assert total <= Fraction(clip_norm)


@pytest.mark.parametrize("p", NORMS)
def test_the_norm_of_a_clipped_gradient_is_never_above_the_bound_and_hardly_below(p):
    for seed in range(20):
        drawn = gradients(seed, num=4, scale=10.0 ** (seed % 7))
        found = example_norms(drawn, p)
        factors = clip_factors(found, 0.5, p)
        for index in range(4):
            alone = [weighted_sum(factors[index : index + 1], part[index : index + 1]) for part in drawn]
            clipped = loop_norm(alone, p)
            assert clipped <= 0.5
            assert found[index] < 0.5 or clipped >= 0.5 * (1.0 - 2e-5)


def test_a_short_gradient_is_not_touched():
    assert torch.equal(clip_factors(torch.tensor([0.0, 0.5, 0.99]), 1.0, 2.0), torch.ones(3))


@pytest.mark.parametrize("p", NORMS)
def test_the_joint_norm_is_that_of_a_vector_made_of_the_parts(p):
    bounds = [0.5, 2.0, 1e-9, 7.0]
    exact = loop_norm([torch.tensor(bounds, dtype=torch.float64)], p)
    assert exact <= joint_norm(bounds, p) <= exact * (1.0 + 1e-12)
