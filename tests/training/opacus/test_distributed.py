# SPDX-License-Identifier: Apache-2.0
"""Two processes over gloo: one set of parameters, noise once, independent batches."""

import math
import os
import socket

import numpy as np
import pytest
import torch
from scipy import stats

from ggdp import GeneralizedGaussian

BETA, MULTIPLIER, CLIP = 1.5, 1.3, 0.7


def _process(rank, port, folder):
    """What each process does; results are written to `folder`."""
    import torch.distributed as dist
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as DPDDP
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    from ggdp.opacus import GGPrivacyEngine
    from ggdp.training import NonFiniteGradientError

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(11)  # the same in both, as scripts do
    data = TensorDataset(torch.arange(40.0)[:, None] / 40.0, torch.zeros(40))
    layer = torch.nn.Linear(1, 10_000)
    model = DPDDP(layer)
    engine = GGPrivacyEngine(beta=BETA)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP,
    )
    sizes, masks, gradients = [], [], []
    for epoch in range(12):
        for x, _ in loader:
            sizes.append(len(x))
            masks.append(sorted((40.0 * x).round().int().flatten().tolist()))
            optimizer.zero_grad()
            (0.0 * model(x)).mean().backward()
            optimizer.step()
            if epoch == 0:
                gradients.append(torch.cat([p.grad.flatten() for p in optimizer.params]).double().numpy())
    failed, parameters = None, []
    for x, _ in loader:
        x = x + math.nan if rank == 1 else x
        optimizer.zero_grad()
        model(x).mean().backward()
        try:
            optimizer.step()
        except NonFiniteGradientError as error:
            failed = str(error)
        break
    for wrapper, physical in [(DistributedDataParallel, None), (DPDDP, 3)]:
        parameters.append(_per_layer(wrapper, physical, data))
    result = {
        "per_layer": parameters,
        "parameters": torch.cat([p.detach().flatten() for p in layer.parameters()]),
        "gradients": gradients,
        "sizes": sizes,
        "masks": masks,
        "steps": len(engine.accountant),
        "history": engine.accountant.history,
        "failed": failed,
    }
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _per_layer(wrapper, physical_batch_size, data):
    """Train with a bound for each parameter, in parts where a size is given."""
    from opacus.utils.batch_memory_manager import BatchMemoryManager
    from torch.utils.data import DataLoader

    from ggdp.opacus import GGPrivacyEngine

    model = wrapper(torch.nn.Linear(1, 2))
    engine = GGPrivacyEngine(beta=1.5)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=[0.5, 0.2],
        clipping="per_layer",
    )
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=physical_batch_size or 40, optimizer=optimizer
    ) as parts:
        for x, _ in parts:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert len(engine.accountant) == 4
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_process, args=(port, str(folder)), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_both_processes_hold_the_same_parameters(both):
    assert torch.equal(both[0]["parameters"], both[1]["parameters"])


def test_so_they_do_with_either_wrapper_bounds_per_parameter_and_batches_in_parts(both):
    for first, second in zip(both[0]["per_layer"], both[1]["per_layer"], strict=True):
        assert torch.equal(first, second)
        assert torch.isfinite(first).all()


def test_noise_is_added_once_in_total(both):
    """Zero gradients: what is left is noise over the expected batch of 10; noise added twice is rejected."""
    drawn = 10.0 * np.concatenate(both[1]["gradients"])
    scale = math.sqrt(2.0) * MULTIPLIER * CLIP
    assert stats.kstest(drawn, GeneralizedGaussian(BETA, scale).cdf).pvalue > 1e-6
    assert stats.kstest(drawn, GeneralizedGaussian(BETA, math.sqrt(2.0) * scale).cdf).pvalue < 1e-12
    assert np.var(drawn) == pytest.approx(GeneralizedGaussian(BETA, scale).std ** 2, rel=0.05)


def test_both_take_every_step_even_where_their_own_part_is_empty(both):
    assert both[0]["steps"] == both[1]["steps"] == len(both[0]["sizes"]) == len(both[1]["sizes"]) == 48
    assert both[0]["history"] == both[1]["history"]


def test_equal_seeds_do_not_make_the_processes_sample_in_step(both):
    """Sizes of 48 pairs of batches are uncorrelated; in step, they would be equal."""
    correlation = np.corrcoef(both[0]["sizes"], both[1]["sizes"])[0, 1]
    assert abs(correlation) < 4.0 / math.sqrt(48)
    assert not any(set(a) & set(b) for a, b in zip(both[0]["masks"][:4], both[1]["masks"][:4], strict=True))


def test_a_gradient_that_is_not_finite_in_one_process_stops_both(both):
    assert all("in at least one process" in result["failed"] for result in both)
