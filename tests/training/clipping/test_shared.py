# SPDX-License-Identifier: Apache-2.0
"""Norms of a matrix that several calls share, from products of positions, against the matrix in float64."""

import pytest
import torch
from torch import Tensor

from ggdp.training.clipping import linear
from ggdp.training.clipping.call import AbstractCall, measure, measure_all
from ggdp.training.clipping.embedding import EmbeddingCall
from ggdp.training.clipping.linear import Slots, linear_call
from ggdp.training.clipping.shared import SummedCalls
from ggdp.training.clipping.workspace import Workspace

N, T, WORDS, WIDTH = 6, 3, 60, 40


def _tied(tokens: Tensor, embedded: Tensor, activation: Tensor, cotangent: Tensor) -> SummedCalls:
    calls: list[AbstractCall] = [
        linear_call(Slots(0, None), activation, cotangent),
        EmbeddingCall(0, WORDS, tokens, embedded),
    ]
    return SummedCalls(calls)


def _truth(tokens: Tensor, embedded: Tensor, activation: Tensor, cotangent: Tensor) -> Tensor:
    """The norms of the matrices, written down from the same float32 numbers in float64."""
    rows = torch.nn.functional.one_hot(tokens, WORDS).double()
    matrices = cotangent.double().transpose(1, 2) @ activation.double()
    return (matrices + rows.transpose(1, 2) @ embedded.double()).flatten(1).norm(dim=1)


def _drawn() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(7)
    tokens = torch.randint(0, 4, (N, T))  # some of them equal
    return tokens, torch.randn(N, T, WIDTH), torch.randn(N, T, WIDTH), torch.randn(N, T, WORDS)


@pytest.mark.parametrize(("embedded", "linear"), [(1.0, 1.0), (1e-30, 1e-20), (1e-30, 1e18), (1e18, 1e-30)])
def test_parts_of_any_size_are_added_without_loss(embedded: float, linear: float) -> None:
    tokens, e, a, g = _drawn()
    e, a = e * embedded, a * linear
    found = _tied(tokens, e, a, g).closed_norms(2.0)
    assert found is not None
    torch.testing.assert_close(found[0].double(), _truth(tokens, e, a, g), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("relative", [0.0, 1e-7, 1e-3])
def test_where_the_parts_cancel_the_norm_does_not_fall_short(relative: float) -> None:
    tokens, _, a, _ = _drawn()
    g = torch.nn.functional.one_hot(tokens, WORDS).float() * 0.7
    e = -0.7 * a * (1.0 + relative * torch.randn_like(a))
    truth, size = _truth(tokens, e, a, g), (0.7 * a.norm(dim=2)).sum(dim=1)
    call = _tied(tokens, e, a, g)
    assert call.closed_norms(2.0) is not None
    (norms,) = measure(call, 2.0, Workspace()).pieces
    assert bool((norms >= truth).all())
    assert bool((norms <= truth + 2e-3 * size).all())  # and is not merely large


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_the_spread_is_the_sum_over_the_positions_of_all_calls(p: float) -> None:
    tokens, e, a, g = _drawn()
    expected = (
        torch.linalg.vector_norm(e, p, dim=2)
        + torch.linalg.vector_norm(a, p, dim=2) * torch.linalg.vector_norm(g, p, dim=2)
    ).sum(dim=1)
    before, after = _tied(tokens, e, a, g), _tied(tokens, e, a, g)
    after.closed_norms(p)
    for call in (before, after):
        torch.testing.assert_close(call.spread(p).float(), expected, rtol=1e-5, atol=0.0)


def test_products_are_not_taken_where_the_matrix_is_cheaper_or_the_norm_is_another() -> None:
    tokens, e, a, g = _drawn()
    assert _tied(tokens, e, a, g).closed_norms(1.5) is None
    small = SummedCalls(
        [linear_call(Slots(0, None), a[:, :, :4], g[:, :, :7]), EmbeddingCall(0, 7, tokens, e[:, :, :4])]
    )
    assert small.closed_norms(2.0) is None


def test_products_of_an_input_that_layers_have_in_common_are_found_once(monkeypatch):
    torch.manual_seed(0)
    tokens, seen = torch.randn(4, 5, 64), []
    calls = [
        linear_call(Slots(number, None), tokens[:], torch.randn(4, 5, outputs))
        for number, outputs in enumerate((64, 64, 32))
    ]
    gram = linear.gram
    monkeypatch.setattr(linear, "gram", lambda vectors: seen.append(vectors.shape[2]) or gram(vectors))
    together = measure_all(calls, 2.0, Workspace())
    assert sorted(seen) == [32, 64, 64, 64]  # three cotangents and the input
    for call, measured in zip(calls, together, strict=True):
        gradients = torch.einsum("nto,nti->noi", call.cotangent, call.activation)
        torch.testing.assert_close(measured.found[0], gradients.flatten(1).norm(dim=1), rtol=1e-5, atol=0.0)
