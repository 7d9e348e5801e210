# SPDX-License-Identifier: Apache-2.0
"""Views of an example: averaged before clipping, at the price of one; and what is refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp.errors import SelfCheckError, UnsupportedModelError
from ggdp.training import fit, make_private
from ggdp.training.batch_draws import poisson_positions
from ggdp.training.randomness import Randomness
from training.models import blobs, generator, small_net

SETTINGS = {"beta": 2.0, "clip_norm": 0.3, "noise_multiplier": 1.0, "delta": 1e-6, "steps": 3}


def mirrored(inputs):
    return torch.stack([inputs, inputs.flip(-1), 0.5 * inputs], dim=1)


def private_run(dataset=None, views=3, seed=7, **settings):
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(dataset or blobs(), batch_size=40)
    return make_private(
        model, optimizer, loader, views=views, generator=generator(seed), **(SETTINGS | settings)
    )


def first_step(private):
    """The noisy sum of the first step."""
    seen = []
    private.optimizer.register_step_pre_hook(
        lambda *_: seen.append(torch.cat([each.grad.flatten() for each in private.model.parameters()]))
    )
    return seen


def test_one_record_moves_the_sum_by_one_clipped_mean_over_its_views():
    private, silent = private_run(), private_run()
    found, noise = first_step(private), first_step(silent)
    fit(private, make_views=mirrored, progress=False)
    fit(silent, make_views=mirrored, loss=lambda outputs, labels: 0.0 * outputs.sum(dim=1).mean(),
        progress=False)  # fmt: skip
    dataset, twin = blobs(), small_net()
    chosen = poisson_positions(len(dataset), private.plan.rate * (1 - 2**-40), Randomness.of(generator(7)))
    total = torch.zeros(private.plan.dimension)
    for index in chosen:
        inputs, label = dataset[int(index)]
        loss = functional.cross_entropy(twin(mirrored(inputs[None])[0]), label.expand(3))
        gradient = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(twin.parameters()))])
        total += gradient * min(1.0, 0.3 / float(gradient.norm()))
    released = (found[0] - noise[0]) * private.plan.expected_batch_size
    assert torch.allclose(released, total, rtol=1e-4, atol=1e-4)


def test_views_cost_nothing():
    assert private_run().plan == private_run(views=1).plan


def test_a_loop_of_ones_own_and_one_loss_per_example_release_what_the_ready_loop_does():
    ready, own, losses = private_run(), private_run(), private_run()
    fit(ready, make_views=mirrored, progress=False)
    for inputs, labels in own.data_loader.batches(3):
        functional.cross_entropy(own.model(mirrored(inputs)), labels.repeat_interleave(3)).backward()
        own.optimizer.step()
    for inputs, labels in losses.data_loader.batches(3):
        each = functional.cross_entropy(
            losses.model(mirrored(inputs)), labels.repeat_interleave(3), reduction="none"
        )
        losses.backward(each.view(-1, 3).mean(dim=1))
        losses.optimizer.step()
    for other in (own, losses):
        assert torch.allclose(other.model[0].weight, ready.model[0].weight, rtol=1e-5, atol=1e-6)


def test_a_dataset_may_hold_the_views():
    inputs, labels = blobs().tensors
    stored, made = private_run(TensorDataset(mirrored(inputs), labels)), private_run()
    fit(stored, progress=False)
    fit(made, make_views=mirrored, progress=False)
    assert torch.equal(stored.model[0].weight, made.model[0].weight)


def test_inputs_without_views_are_refused_with_the_shape():
    private = private_run()
    with pytest.raises(
        UnsupportedModelError, match=r"shape \(examples, 3, \.\.\.\) in training, got \(\d+, 6\)"
    ):
        private.model(next(iter(private.data_loader))[0])
    private.model.eval()
    assert private.model(torch.zeros(5, 6)).shape == (5, 2)


def test_labels_of_other_examples_are_noticed():
    """Repeated as a whole and not one by one, labels belong to the views of other examples."""
    private = private_run()
    inputs, labels = next(iter(private.data_loader))

    def mixed(inputs, labels):
        return functional.cross_entropy(private.model(mirrored(inputs)), labels.repeat(3))

    def right(inputs, labels):
        return functional.cross_entropy(private.model(mirrored(inputs)), labels.repeat_interleave(3))

    private.check(right, inputs, labels)
    with pytest.raises(SelfCheckError):
        private.check(mixed, inputs, labels)


def test_views_that_see_other_examples_are_refused():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(6, 2)

        def forward(self, inputs):
            return self.inner(inputs - inputs.mean(dim=0))

    model = Mixing()
    private = make_private(
        model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(blobs(), batch_size=40), views=3,
        **SETTINGS,
    )  # fmt: skip
    inputs, labels = next(iter(private.data_loader))
    functional.cross_entropy(model(mirrored(inputs)), labels.repeat_interleave(3)).backward()
    with pytest.raises(SelfCheckError):
        private.optimizer.step()


def test_views_must_be_a_dimension_of_their_own():
    with pytest.raises(ValueError, match="views must be 1 with batch_first=False"):
        private_run(batch_first=False)
    with pytest.raises(ValueError, match="views must be"):
        private_run(views=0)
