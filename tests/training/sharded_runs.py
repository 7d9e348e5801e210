# SPDX-License-Identifier: Apache-2.0
"""Runs of a model that `fully_shard` has shared out over two processes, for test_distributed.py."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from ggdp.distributions.secure import secure_generator
from ggdp.training import fit, make_private
from training.models import blobs, generator

RUNS = {
    "parts of a batch": {"physical_batch_size": 3},
    "batches that are smaller than the group": {"rate": 0.03, "steps": 12},
    "checkpointed activations": {"saving": True},
    "a secure generator": {"generator": "secure"},
}


class Net(nn.Module):
    """Layers of several kinds; 9 rows, so that two processes hold unequal parts."""

    def __init__(self, saving=False):
        super().__init__()
        self.saving = saving
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.first = nn.Linear(6, 9)
            self.block = nn.Sequential(nn.Linear(9, 9), nn.Tanh(), nn.LayerNorm(9))
            self.convolution = nn.Conv1d(1, 3, 3)
            self.recurrent = nn.LSTM(3, 5, batch_first=True)
            self.last = nn.Linear(5, 2)

    def forward(self, inputs):
        found = torch.tanh(self.first(inputs))
        found = checkpoint(self.block, found, use_reentrant=False) if self.saving else self.block(found)
        return self.last(self.recurrent(self.convolution(found.unsqueeze(1)).transpose(1, 2))[0][:, -1])


def made(model=None, dataset=None, sharded=True, **settings):
    model = Net(settings.pop("saving", False)) if model is None else model
    if sharded:
        for inner in model.children():
            fully_shard(inner)
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    if settings.get("generator", "") == "secure":
        settings["generator"] = secure_generator(key=bytes(range(32)))
    rank = dist.get_rank() if dist.is_initialized() else 0
    options = {"noise_multiplier": 0.5, "delta": 1e-6, "rate": 0.3, "steps": 4, "beta": 2.0, "clip_norm": 0.5}
    options |= {"generator": generator(5 + rank)} | settings  # process 0 decides, whatever others were given
    return make_private(model, optimizer, DataLoader(dataset or blobs(40), batch_size=10), **options)


def trained(private):
    for inputs, labels in private.data_loader.batches(private.plan.steps):
        functional.cross_entropy(private.model(inputs), labels).backward()
        private.optimizer.step()
    return whole(private.model)


def whole(model):
    return {
        name: each.full_tensor() if hasattr(each, "full_tensor") else each.clone()
        for name, each in model.state_dict().items()
    }


def run(name, sharded):
    private = made(sharded=sharded, **RUNS[name])
    model = trained(private)
    epsilon = private.accountant.epsilon(delta=1e-6).upper
    return {"model": model, "epsilon": epsilon, "checks": private.gradients.num_checks}


def noise_alone(sharded):
    """What one step adds to gradients of zero, for parameters that are drawn together and by themselves."""
    model = nn.Sequential(nn.Linear(301, 233), nn.Linear(233, 3))
    private = made(model, TensorDataset(torch.zeros(20, 301)), sharded, steps=1, rate=0.5, beta=1.5)
    drawn = {}
    private.optimizer.register_step_post_hook(lambda *_: drawn.update(gradients(model)))
    for (inputs,) in private.data_loader.batches(1):
        (0.0 * model(inputs).sum(dim=1)).mean().backward()
        private.optimizer.step()
    return drawn


def gradients(model):
    return {
        name: each.grad.full_tensor() if hasattr(each.grad, "full_tensor") else each.grad.clone()
        for name, each in model.named_parameters()
    }


def memory():
    """How many numbers a process holds that last, as a share of those of the whole model."""
    private = made(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), blobs(40, 64), steps=2)
    held = [0]
    private.optimizer.register_step_post_hook(lambda *_: held.append(_held(private)))
    trained(private)
    parameters = sum(each.numel() for each in private.model.parameters())
    return held[-1] / (4 * parameters)  # parameters, gradients and two averages of Adam


def _held(private):
    tensors = []
    for parameter in private.model.parameters():
        state = private.optimizer.state[parameter]
        tensors += [parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]]
    return sum(each.to_local().numel() for each in tensors)


def error_in_one_process():
    """Process 1 meets a gradient that is not a number; its other examples and process 0 do not."""
    inputs, labels = (part.clone() for part in blobs(20)[:])
    inputs[1::2] = torch.nan
    private = made(dataset=TensorDataset(inputs, labels), rate=1.0, non_finite="refuse")
    try:
        trained(private)
    except Exception as error:
        return f"{type(error).__name__}: {error}", len(private.accountant)


class Stray(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.layer = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, inputs):
        return self.layer(self.used(inputs) + inputs @ self.used.weight)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.layer = nn.Parameter(torch.zeros(1, 6)), nn.Linear(6, 2)

    def forward(self, inputs):
        return self.layer(inputs + self.token)


def refusals():
    """What is said to models that are sharded in ways that cannot be checked."""
    some = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    fully_shard(some[0])
    late = made(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2)), sharded=False)
    fully_shard(late.model)
    columns = nn.Linear(6, 2)
    fully_shard(columns, shard_placement_fn=lambda parameter: _last_dimension(parameter))
    stray = Stray()
    fully_shard(stray)
    attempts = {
        "one part alone": lambda: made(some, sharded=False),
        "after make_private": lambda: trained(late),
        "columns": lambda: made(columns, sharded=False),
        "a stray use": lambda: trained(made(stray, sharded=False)),
        "parameters beside layers": lambda: made(Tokens()),
        "average": lambda: fit(made(), average=0.9, progress=False),
    }
    found = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def _last_dimension(parameter):
    from torch.distributed.tensor import Shard

    return Shard(parameter.dim() - 1)


class Killed(BaseException):
    pass


def kept(folder, *, resume, sharded=True):
    """A run of three epochs that is killed after the first, or goes on from there."""

    def kill(row):
        raise Killed

    private = made(sharded=sharded, steps=9, rate=1 / 3)
    options = {"checkpoint": folder, "resume": resume, "keep_best": True, "save_every": 0.001}
    try:
        report = fit(private, on_epoch=None if resume else kill, progress=False, **options)
    except Killed:
        return whole(private.model), private.optimizer.steps
    return [row.steps for row in report.rows], len(private.accountant), report.steps_lost


def everything(folder):
    """All of it, in one of two processes."""
    killed, _ = kept(folder / "sharded", resume=False)
    if dist.get_rank() == 0:
        (folder / "left").write_bytes((folder / "sharded" / "checkpoint.pt").read_bytes())
        (folder / "left ledger").write_bytes((folder / "sharded" / "ledger.json").read_bytes())
    return {
        "runs": {name: run(name, sharded=True) for name in RUNS},
        "noise": noise_alone(sharded=True),
        "memory": memory(),
        "error": error_in_one_process(),
        "refusals": refusals(),
        "killed": killed,
        "resumed": kept(folder / "sharded", resume=True),
    }


def resumed_by_one(left):
    """What one process makes of the files that two have left."""
    with tempfile.TemporaryDirectory() as folder:
        for source, name in (("left", "checkpoint.pt"), ("left ledger", "ledger.json")):
            (Path(folder) / name).write_bytes((left / source).read_bytes())
        state = torch.load(Path(folder) / "checkpoint.pt", weights_only=True)
        return state["model"], kept(folder, resume=True, sharded=False)
