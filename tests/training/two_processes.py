# SPDX-License-Identifier: Apache-2.0
"""What each of two processes does in test_distributed.py: train, and save what it ends with.

Usage: torchrun --nproc-per-node 2 two_processes.py FOLDER
"""

import datetime
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp.training import accuracy_on, fit, make_private
from training import sharded_runs
from training.models import blobs, generator, small_net


def everything(wrapped):
    """A run that samples every example, so that two processes and one see the same batches."""
    model = small_net(seed=dist.get_rank() if dist.is_initialized() else 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    parts = nn.parallel.DistributedDataParallel(model) if wrapped else model
    loader = DataLoader(blobs(100), batch_size=100)
    options = {"noise_multiplier": 1.0, "delta": 1e-6, "steps": 5, "physical_batch_size": 30}
    private = make_private(
        parts, optimizer, loader, beta=1.5, clip_norm=0.5, generator=generator(3), **options
    )
    report = fit(private, evaluate=accuracy_on(blobs(50, seed=9)), progress=False)
    return {"model": private.model.state_dict(), "epsilon": report.last.epsilon, "steps": report.last.steps}


def noise_alone():
    """Steps of a model whose loss is constant, with unpredictable noise."""
    model = nn.Linear(100, 60)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(TensorDataset(torch.zeros(20, 100)), batch_size=5)
    private = make_private(
        model, optimizer, loader, beta=2.0, clip_norm=0.5, noise_multiplier=1.0, delta=1e-6, steps=4
    )
    drawn = []
    private.optimizer.register_step_post_hook(lambda *_: drawn.append(model.weight.grad.reshape(-1) * 5.0))
    for (inputs,) in private.data_loader:
        (0.0 * model(inputs).sum(dim=1)).mean().backward()
        private.optimizer.step()
    return torch.cat(drawn)


def made(dataset, rank=0, model=None, **settings):
    model = model or small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    options = {"noise_multiplier": 1.0, "delta": 1e-6, "steps": 3} | settings
    return make_private(
        model, optimizer, DataLoader(dataset, batch_size=20), beta=2.0, clip_norm=0.5, **options
    )


def spoiled():
    inputs, labels = (part.clone() for part in blobs(20)[:])
    inputs[1::2] = torch.nan  # the examples of process 1
    return TensorDataset(inputs, labels)


def first_step(private, loss=functional.cross_entropy):
    """What the first step raises, and what the ledger holds after it and after another attempt."""
    message = ""
    try:
        for batch, target in private.data_loader:
            loss(private.model(batch), target).backward()
            private.optimizer.step()
            break
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        try:
            private.optimizer.step()
        except Exception as again:
            message += f" | {again}"
    return message, len(private.accountant)


def one_process_with_bad_examples():
    """Process 1 meets gradients that are not numbers."""
    return first_step(made(spoiled(), non_finite="refuse"))


def bad_examples_left_out():
    private = made(spoiled())
    return *first_step(private), private.optimizer.num_zeroed


def one_process_that_changes_its_optimizer():
    private = made(blobs(20))
    if dist.get_rank() == 1:
        private.optimizer.param_groups[0]["params"].append(nn.Parameter(torch.zeros(3)))
    return first_step(private)


def one_process_whose_first_part_fails():
    """Process 1 fails at the first of several parts, process 0 comes to the last of its own."""
    private = made(blobs(20), physical_batch_size=4)
    if dist.get_rank() == 1:
        private.optimizer._gradients.clipped_sum = lambda clipping: 1 / 0
    try:
        for batch, target in private.data_loader:
            functional.cross_entropy(private.model(batch), target).backward()
            private.optimizer.step()
    except Exception as error:
        return f"{type(error).__name__}: {error}", len(private.accountant)


def one_process_whose_loss_fails():
    def loss(output, target):
        if dist.get_rank() == 1:
            raise RuntimeError("no memory left")
        return functional.cross_entropy(output, target)

    try:
        fit(made(blobs(20)), loss=loss, progress=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def disagreements():
    """What make_private says to processes that were not given the same."""
    rank, found = dist.get_rank(), {}
    wide = torch.nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 2))
    parts = blobs(40)[:]
    cases = {
        "unequal shards": {"dataset": blobs(20 if rank else 40)},
        "equal shards": {"dataset": TensorDataset(*(part[rank::2] for part in parts))},
        "noise": {"dataset": blobs(40), "noise_multiplier": 1.0 + rank},
        "model": {"dataset": blobs(40), "model": wide if rank else None},
        "clipping": {"dataset": blobs(40), "non_finite": "refuse" if rank else "zero"},
        "mistake": {"dataset": blobs(40), "delta": -1.0 if rank else 1e-6},
    }
    for name, case in cases.items():
        try:
            made(**case)
            found[name] = ""
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    made(blobs(40), model=wide).detach()  # the refused attempts have left the model as it was
    return found


def empty_parts():
    """Process 1 samples nothing at all: no example is left for it."""
    private = made(TensorDataset(torch.ones(1, 6), torch.zeros(1, dtype=torch.long)), rate=0.5, steps=20)
    handed_out = 0
    for batch, target in private.data_loader.batches(20):
        handed_out += 1
        functional.cross_entropy(private.model(batch), target).backward()
        private.optimizer.step()
    return handed_out, private.optimizer.steps, private.model[0].weight.detach()


def resumed(folder):
    """A run that is killed after its first epoch and goes on, with process 0's files alone."""

    class Killed(BaseException):
        pass

    def kill(row):
        raise Killed

    for resume in (False, True):
        private = made(blobs(60), steps=9)
        try:
            report = fit(
                private,
                checkpoint=folder / "run",
                resume=resume,
                on_epoch=None if resume else kill,
                progress=False,
            )
        except Killed:
            continue
    files = sorted(path.name for path in (folder / "run").iterdir())
    return (
        private.model[0].weight.detach(),
        [row.steps for row in report.rows],
        files,
        len(private.accountant),
    )


def main(folder):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))  # a hang is a failure
    torch.set_num_threads(1)
    outcome = {
        "plain": everything(wrapped=False),
        "wrapped": everything(wrapped=True),
        "noise": noise_alone(),
        "bad": one_process_with_bad_examples(),
        "left out": bad_examples_left_out(),
        "changed": one_process_that_changes_its_optimizer(),
        "part": one_process_whose_first_part_fails(),
        "loss": one_process_whose_loss_fails(),
        "disagreements": disagreements(),
        "empty": empty_parts(),
        "resumed": resumed(folder),
        "sharded": sharded_runs.everything(folder),
    }
    torch.save(outcome, folder / f"{dist.get_rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
