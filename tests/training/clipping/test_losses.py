# SPDX-License-Identifier: Apache-2.0
"""Losses as people write them: plain means pass, and what mixes examples is refused with the way out."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ggdp.training.clipping import Clipping, ExampleGradients, UnsupportedModelError

N, CLASSES = 8, 4
Loss = Callable[[nn.Module], Tensor]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def _net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, CLASSES))


X, OTHER, Y, T = torch.randn(N, 6), torch.randn(N, 6), torch.arange(N) % CLASSES, torch.rand(N, CLASSES)


def _distance(model: nn.Module) -> Tensor:
    return F.pairwise_distance(model(X), model(OTHER))


ACCEPTED: dict[str, Loss] = {
    "siamese": lambda m: F.cosine_embedding_loss(m(X), m(OTHER), torch.ones(N)),
    "triplet": lambda m: F.triplet_margin_loss(m(X), m(OTHER), m(X + 1.0)),
    "contrastive pairs": lambda m: (d := _distance(m)).square().mean() + F.relu(1.0 - d).square().mean(),
    "binary": lambda m: F.binary_cross_entropy_with_logits(m(X), T, pos_weight=T[0]),
    "binary of probabilities": lambda m: F.binary_cross_entropy(m(X).sigmoid(), T),
    "huber": lambda m: F.huber_loss(m(X), T),
    "distillation": lambda m: 4.0 * F.kl_div(m(X).log_softmax(1), T.softmax(1), reduction="batchmean"),
    "focal": lambda m: ((1 - (-(ce := F.cross_entropy(m(X), Y, reduction="none"))).exp()) ** 2 * ce).mean(),
    "smoothed labels": lambda m: F.cross_entropy(m(X), Y, label_smoothing=0.1),
    "soft labels": lambda m: F.cross_entropy(m(X), T.softmax(1)),
    "gaussian likelihood": lambda m: F.gaussian_nll_loss((o := m(X))[:, 0], T[:, 0], o[:, 1].exp()),
    "poisson likelihood": lambda m: F.poisson_nll_loss(m(X), T),
    "margins": lambda m: F.multi_margin_loss(m(X), Y),
    "quantile": lambda m: torch.max(0.9 * (e := T - m(X)), -0.1 * e).mean(),
    "dice of each example": lambda m: (
        1.0 - 2.0 * ((p := m(X).sigmoid()) * T).sum(1) / (p.sum(1) + T.sum(1))
    ).mean(),
    "two means": lambda m: 0.7 * F.cross_entropy(o := m(X), Y) + 0.3 * F.mse_loss(o, T),
    "entropy": lambda m: -torch.distributions.Categorical(logits=m(X)).entropy().mean(),
    "by index": lambda m: -m(X).log_softmax(1)[torch.arange(N), Y].mean(),
    "by gather": lambda m: -m(X).log_softmax(1).gather(1, Y[:, None]).mean(),
    "sum over length": lambda m: (m(X) - T).square().sum() / len(X),
    "mean of means": lambda m: (m(X) - T).square().mean(dim=1).mean(),
}
REFUSED: dict[str, tuple[Loss, str]] = {
    "class weights": (lambda m: F.cross_entropy(m(X), Y, weight=torch.rand(CLASSES)), "class weights"),
    "ignored targets": (lambda m: F.cross_entropy(m(X), Y.where(Y > 0, -100)), "ignore_index"),
    "divided by a count": (lambda m: m(X).square().sum() / (Y > 0).sum(), "not a Python float"),
    "root of a mean": (lambda m: F.mse_loss(m(X), T).sqrt(), "Sqrt"),
    "dice of the batch": (
        lambda m: 1.0 - 2.0 * ((p := m(X).sigmoid()) * T).sum() / (p.sum() + T.sum()),
        "Rsub|Div",
    ),
    "other examples as negatives": (lambda m: F.cross_entropy((z := m(X)) @ z.t(), torch.arange(N)), "Mm"),
    "variance of the batch": (lambda m: m(X).var(dim=0).mean(), "Var"),
    "sorted": (lambda m: m(X).sort(dim=0).values.square().mean(), "Sort"),
    "a sum": (lambda m: F.cross_entropy(m(X), Y, reduction="sum"), "a sum over the batch"),
    "scaled by a tensor": (lambda m: F.cross_entropy(m(X), Y) * torch.tensor(65536.0), "GradScaler"),
}
BY_EXAMPLE: dict[str, Loss] = {
    "class weights": lambda m: F.cross_entropy(m(X), Y, weight=torch.rand(CLASSES), reduction="none"),
    "an operation that is not known": lambda m: torch.einsum("nd,nd->n", m(X), T),
    "speech": lambda m: F.ctc_loss(
        m(X.repeat(9, 1, 1)).log_softmax(2), Y[:, None] % 3 + 1, torch.full((N,), 9), torch.ones(N).long(),
        reduction="none",
    ),
}  # fmt: skip
MIXED: dict[str, Loss] = {
    "other examples as negatives": lambda m: F.cross_entropy(
        (z := m(X)) @ z.t(), torch.arange(N), reduction="none"
    ),
    "distances to others": lambda m: torch.cdist(m(X), m(X)).sum(dim=1),
    "centred": lambda m: ((z := m(X)) - z.mean(dim=0)).square().sum(dim=1),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_plain_mean_gives_the_gradients_of_its_examples(name: str) -> None:
    model = _net()
    gradients = ExampleGradients(model)
    ACCEPTED[name](model).backward()
    found = gradients.clipped_sum(Clipping(1e6, 2.0))
    gradients.detach()
    ACCEPTED[name](model).backward()
    for total, parameter in zip(found.sums, model.parameters(), strict=True):
        torch.testing.assert_close(total, N * parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_that_mixes_examples_is_refused_before_anything_is_summed(name: str) -> None:
    model, (loss, words) = _net(), REFUSED[name]
    gradients = ExampleGradients(model)
    with pytest.raises(UnsupportedModelError, match=words):  # noqa: PT012
        loss(model).backward()
        gradients.clipped_sum(Clipping(1.0, 2.0))


@pytest.mark.parametrize("name", BY_EXAMPLE)
def test_one_loss_per_example_is_taken(name: str) -> None:
    model = _net()
    gradients = ExampleGradients(model, batch_first=name != "speech")
    losses = BY_EXAMPLE[name](model)
    gradients.backward(losses)
    assert gradients.clipped_sum(Clipping(1.0, 2.0)).num_examples == N


@pytest.mark.parametrize("name", MIXED)
def test_losses_that_depend_on_other_examples_are_refused(name: str) -> None:
    model = _net()
    gradients = ExampleGradients(model)
    losses = MIXED[name](model)
    with pytest.raises(UnsupportedModelError, match=r"other examples|keeps examples apart"):
        gradients.backward(losses)


def test_losses_must_be_one_for_every_example() -> None:
    model = _net()
    gradients = ExampleGradients(model)
    with pytest.raises(ValueError, match=r"one loss per example, of shape \(8,\).*got shape \(8, 4\)"):
        gradients.backward(model(X).square())


class Autoencoder(nn.Module):
    """Returns what it computed, and what it computed that from."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 6), nn.Linear(3, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).tanh().chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def test_a_variational_autoencoder_passes_the_check_of_single_examples() -> None:
    model = Autoencoder().double()
    x = X.double()
    gradients = ExampleGradients(model)
    for _ in range(2):
        again, mean, log_variance = model(x)
        divergence = -0.5 * (1.0 + log_variance - mean.square() - log_variance.exp()).sum(dim=1).mean()
        (F.mse_loss(again, x, reduction="sum") / len(x) + divergence).backward()
        assert gradients.clipped_sum(Clipping(0.1, 2.0)).num_examples == N
    assert gradients.num_checks == 2
