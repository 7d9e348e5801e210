# SPDX-License-Identifier: Apache-2.0
"""What each of two processes does in test_distributed.py: train, and save what it ends with.

Usage: torchrun --nproc-per-node 2 two_processes.py FOLDER
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp.training import NonFiniteGradientError, accuracy_on, fit, make_private
from training.models import blobs, generator, small_net


def everything(wrapped):
    """A run that samples every example, so that two processes and one see the same batches."""
    model = small_net(seed=dist.get_rank() if dist.is_initialized() else 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    parts = nn.parallel.DistributedDataParallel(model) if wrapped else model
    loader = DataLoader(blobs(100), batch_size=100)
    options = {"noise_multiplier": 1.0, "delta": 1e-6, "steps": 5, "physical_batch_size": 30}
    private = make_private(parts, optimizer, loader, 1.5, 0.5, generator=generator(3), **options)
    report = fit(private, evaluate=accuracy_on(blobs(50, seed=9)), progress=False)
    return {"model": private.model.state_dict(), "epsilon": report.last.epsilon, "steps": report.last.steps}


def noise_alone():
    """Steps of a model whose loss is constant, with unpredictable noise."""
    model = nn.Linear(100, 60)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.zeros(20, 100)), batch_size=5)
    private = make_private(model, optimizer, loader, 2.0, 0.5, noise_multiplier=1.0, delta=1e-6, steps=4)
    drawn = []
    for (inputs,) in private.data_loader:
        (0.0 * model(inputs).sum(dim=1)).mean().backward()
        private.optimizer.step()
        drawn.append(model.weight.grad.reshape(-1) * 5.0)
    return torch.cat(drawn)


def one_bad_process():
    """Process 1 meets a gradient that is not a number; both must hear of it."""
    inputs, labels = (part.clone() for part in blobs(20)[:])
    inputs[1::2] = torch.nan  # the examples of process 1
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=20)
    private = make_private(model, optimizer, loader, 2.0, 0.5, noise_multiplier=1.0, delta=1e-6, steps=1)
    for batch, target in private.data_loader:
        functional.cross_entropy(model(batch), target).backward()
        try:
            private.optimizer.step()
        except NonFiniteGradientError as error:
            return str(error)
    return ""


def main(folder):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    outcome = {
        "plain": everything(wrapped=False),
        "wrapped": everything(wrapped=True),
        "noise": noise_alone(),
        "bad": one_bad_process(),
    }
    torch.save(outcome, folder / f"{dist.get_rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
