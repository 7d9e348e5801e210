# SPDX-License-Identifier: Apache-2.0
"""Private training side by side: examples per second and memory of whole steps, in processes of their own.

    python benchmarks/training.py                              # all of it on a CPU: about five minutes
    python benchmarks/training.py --task adult --seconds 2 --json
    python benchmarks/training.py --device cuda --task scatternet
    python benchmarks/training.py --device cuda --task gpt2 --profile "ggdp, beta 2"   # where the time goes

A step is everything from the batch out of the loader to the parameters moved: forward, backward, clipping,
noise, optimizer. Trainers:

- *non-private*: shuffled batches cut out of tensors, ordinary gradients, SGD. The limit.
- *Opacus*: PrivacyEngine.make_private, hooks mode, its Poisson loader (its DPLSTM in place of nn.LSTM).
- *Opacus, no loader*: the same engine fed with ready batches, its gradient work alone.
- *Opacus, ghost*: its ghost clipping, which writes no gradients down, fed with ready batches too.
- *ggdp, beta b*: ggdp.torch.make_private with a seeded generator, as Opacus's noise is by default.
- *ggdp, secure*: the same at beta = 2 with unpredictable batches and noise, which is ggdp's default.

Every round runs all trainers of a task one after another, so that a busy machine slows all of them; the
median round counts. On a GPU the next processes start (imports, data, model) while one is measured, and wait
for their turn before the first step. Examples per CPU second are what the work costs, whoever else uses the
machine. *peak* is the resident memory of the whole process at its largest, libraries included, *growth* what
training added to it (on a GPU both are of tensors).

How far from the limit: forward and backward cost what ordinary ones do without their weight gradients;
measuring costs one product per layer of the size of a weight gradient (nothing of the kind for linear layers
on plain vectors), summing one pass over gradients that were kept, or one more such product. So the limit is
about the speed of ordinary training. A run on one core (EPYC, AVX-512, shared, PyTorch 2.13) reached per CPU
second 0.41 to 0.54 of it for the Adult net, where a step of 0.9 ms is mostly the overhead of some 150 small
operations (forward and backward 0.3, clipping 0.2, noise 0.2, loader 0.1), 0.61 for the digits network and
0.46 for the reviews, where noise on 1,081,002 numbers takes as long as clipping.
"""

import argparse
import fcntl
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CLIP_NORM, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 0.05
TRAINERS = (
    "non-private",
    "Opacus",
    "Opacus, no loader",
    "Opacus, ghost",
    "ggdp, beta 2",
    "ggdp, beta 1.5",
    "ggdp, secure",
)
TASKS = {  # examples in the training set, expected batch
    "adult": (32_561, 256),
    "digits": (1_437, 256),
    "imdb": (25_000, 32),
    "scatternet": (50_000, 8192),
    "gpt2": (4_096, 256),
    "vit": (16_384, 2048),
}
ON_CPU = ("adult", "digits", "imdb")  # the others need a GPU to be worth a look
WORDS, LENGTH = 8_192, 128  # of gpt2


@dataclass(frozen=True)
class Record:
    """One trainer on one task, one round; None where a thing did not work."""

    task: str
    trainer: str
    examples_per_second: float | None
    examples_per_cpu_second: float | None
    peak_mib: float | None
    growth_mib: float | None
    failure: str | None = None


def main() -> None:
    arguments = _arguments()
    if arguments.batch:
        for task in arguments.task or (arguments.one or [])[:1]:
            TASKS[task] = (TASKS[task][0], arguments.batch)
    if arguments.one:
        print(json.dumps(asdict(_measured(*arguments.one, arguments))))
        return
    if arguments.profile:
        print(_profiled(arguments))
        return
    on_gpu = arguments.device != "cpu"
    tasks = arguments.task or [name for name in TASKS if (name not in ON_CPU) == on_gpu]
    trainers = arguments.trainer or TRAINERS
    runs = [(task, trainer) for task in tasks for _ in range(arguments.rounds) for trainer in trainers]
    records = []
    if arguments.json:
        print(json.dumps({"machine": _machine()}), flush=True)
    with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor(4 if on_gpu else 1) as pool:
        for record in pool.map(lambda run: _in_a_process(*run, arguments, turn.name), runs):
            records.append(record)
            if arguments.json:
                print(json.dumps(asdict(record)), flush=True)
    if not arguments.json:
        print(_page(tasks, trainers, records))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=TASKS, action="append", help="may be repeated; else all that suit")
    parser.add_argument("--trainer", choices=TRAINERS, action="append", help="may be repeated; else all")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measured steps per trainer and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of a CPU")
    parser.add_argument("--tf32", action="store_true", help="let products on a GPU round to 11 bits")
    parser.add_argument("--profile", choices=TRAINERS, help="the operations of five steps of one trainer")
    parser.add_argument("--json", action="store_true", help="a line for each record, as they come")
    parser.add_argument("--batch", type=int, help="another expected batch, of the tasks named by --task")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "TRAINER"), help=argparse.SUPPRESS)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_a_process(task: str, trainer: str, arguments: argparse.Namespace, turn: str) -> Record:
    options = [f"--{name}={getattr(arguments, name)}" for name in ("device", "seconds", "threads")]
    options += ["--turn", turn] + ["--tf32"] * arguments.tf32
    options += [f"--batch={arguments.batch}"] if arguments.batch else []
    command = [sys.executable, str(Path(__file__).resolve()), "--one", task, trainer, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Record(task, trainer, None, None, None, None, reason)
    return Record(**json.loads(done.stdout.splitlines()[-1]))


def _begun(task: str, trainer: str, arguments: argparse.Namespace) -> tuple[Iterator[int], float]:
    """Steps of which some have been taken, and the memory before them."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    torch.backends.cuda.matmul.allow_tf32 = arguments.tf32
    torch.manual_seed(0)
    device = torch.device(arguments.device)
    steps = _steps(task, trainer, device)
    if arguments.turn:  # given back when this process ends
        fcntl.flock(os.open(arguments.turn, os.O_RDWR), fcntl.LOCK_EX)
    before = _memory_mib(device)
    for _ in range(5):
        next(steps)
    _wait(device)
    return steps, before


def _profiled(arguments: argparse.Namespace) -> str:
    """The operations that take most of five steps, by their own time on the device."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (arguments.device != "cpu")
    parts = []
    for task in arguments.task or ON_CPU:
        steps, _ = _begun(task, arguments.profile, arguments)
        start = time.perf_counter()
        for _ in range(5):
            next(steps)
        _wait(torch.device(arguments.device))
        seconds = (time.perf_counter() - start) / 5
        with profile(activities=kinds) as found:
            for _ in range(5):
                next(steps)
            _wait(torch.device(arguments.device))
        averages = found.key_averages()
        order = "self_cpu_time_total" if arguments.device == "cpu" else "self_cuda_time_total"
        table = averages.table(sort_by=order, row_limit=25, max_name_column_width=60)
        calls = sum(each.count for each in averages if each.key.startswith("aten::")) / 5
        parts.append(f"{task}, {arguments.profile}: {1e3 * seconds:.2f} ms a step, {calls:.0f} operations")
        parts.append(table)
    return "\n".join(parts)


def _measured(task: str, trainer: str, arguments: argparse.Namespace) -> Record:
    """Train for some seconds in this process."""
    import torch

    device = torch.device(arguments.device)
    steps, before = _begun(task, trainer, arguments)
    count, start, seconds, busy = 0, time.perf_counter(), 0.0, time.process_time()
    while seconds < arguments.seconds:
        count += next(steps)
        _wait(device)
        seconds = time.perf_counter() - start
    busy, peak = time.process_time() - busy, _memory_mib(device)
    return Record(task, trainer, count / seconds, count / busy, peak, peak - before)


def _steps(task: str, trainer: str, device: Any) -> Iterator[int]:
    """Endless steps; each gives the number of examples it took."""
    import torch

    inputs, labels = _data(task, device)
    model = _model(task, by_opacus=trainer.startswith("Opacus")).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    prepare = _opacus if trainer.startswith("Opacus") else _ggdp if trainer.startswith("ggdp") else None
    if prepare is None:
        return _loop(model, optimizer, lambda: _ready_batches(task, inputs, labels))
    return prepare(task, trainer, model, optimizer, (inputs, labels))


def _loop(
    model: Any, optimizer: Any, batches: Callable[[], Any], loss: Callable[..., Any] | None = None
) -> Iterator[int]:
    import torch.nn.functional as F

    model.train()
    while True:
        for inputs, labels in batches():
            optimizer.zero_grad()
            outputs = model(inputs)
            if loss is not None:  # a row per example, classes in dimension 1
                loss(outputs.transpose(1, -1) if outputs.dim() == 3 else outputs, labels).backward()
            else:
                F.cross_entropy(outputs.flatten(0, -2), labels.flatten()).backward()
            optimizer.step()
            yield len(labels)


def _ready_batches(task: str, inputs: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    """One shuffled pass over the data."""
    import torch

    for chosen in torch.randperm(len(labels), device=labels.device).split(TASKS[task][1]):
        yield inputs[chosen], labels[chosen]


def _opacus(task: str, trainer: str, model: Any, optimizer: Any, data: tuple[Any, Any]) -> Iterator[int]:
    from opacus import PrivacyEngine
    from torch.nn import CrossEntropyLoss
    from torch.utils.data import DataLoader, TensorDataset

    with_loader = trainer == "Opacus"
    loader = DataLoader(TensorDataset(*data), batch_size=TASKS[task][1])
    is_ghost = trainer.endswith("ghost")
    model, optimizer, *rest = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        poisson_sampling=with_loader,
        **({"criterion": CrossEntropyLoss(), "grad_sample_mode": "ghost"} if is_ghost else {}),
    )
    batches = (lambda: rest[-1]) if with_loader else lambda: _ready_batches(task, *data)
    return _loop(model, optimizer, batches, rest[0] if is_ghost else None)


def _ggdp(task: str, trainer: str, model: Any, optimizer: Any, data: tuple[Any, Any]) -> Iterator[int]:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from ggdp.torch import make_private

    private = make_private(
        model,
        optimizer,
        DataLoader(TensorDataset(*data), batch_size=TASKS[task][1]),
        beta=1.5 if trainer.endswith("1.5") else 2.0,
        clip_norm=CLIP_NORM,
        noise_multiplier=NOISE_MULTIPLIER,
        delta=1e-6,
        steps=10**6,
        generator=None if trainer.endswith("secure") else torch.Generator().manual_seed(1),
    )
    return _loop(private.model, private.optimizer, lambda: private.data_loader)


def _data(task: str, device: Any) -> tuple[Any, Any]:
    """Random inputs and labels of the task's shapes: speed does not depend on what is learned."""
    import torch

    size = TASKS[task][0]
    inputs = {
        "adult": lambda: (torch.rand(size, 123) < 0.11).float(),
        "digits": lambda: torch.rand(size, 1, 8, 8),
        "imdb": lambda: torch.randint(0, 10_000, (size, 128)),
        "scatternet": lambda: torch.randn(size, 243, 8, 8, device=device),
        "gpt2": lambda: torch.randint(0, WORDS, (size, LENGTH)),
        "vit": lambda: torch.randn(size, 3, 64, 64, device=device),
    }[task]()
    inputs = inputs.to(device)
    if task == "gpt2":  # the next word of every word
        return inputs, inputs.roll(-1, dims=1)
    classes = 2 if task in ("adult", "imdb") else 10
    return inputs, torch.randint(0, classes, (size,), device=device)


def _model(task: str, *, by_opacus: bool) -> Any:
    from torch import nn

    if task == "adult":
        return nn.Sequential(nn.Linear(123, 32), nn.ReLU(), nn.Linear(32, 2))
    if task == "digits":
        layers: list[nn.Module] = [nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(128, 10))
    if task == "scatternet":
        layers = [nn.Conv2d(243, 64, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.Tanh(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(1024, 10))
    if task in ("gpt2", "vit"):
        return _transformer(task)
    return _review_classifier(by_opacus=by_opacus)


def _transformer(task: str) -> Any:
    """Small models of the transformers library: 6 layers of width 384, or 192, with logits for output."""
    import transformers
    from torch import nn

    transformers.utils.logging.set_verbosity_error()
    if task == "gpt2":
        sizes = {"n_layer": 6, "n_embd": 384, "n_head": 6, "vocab_size": WORDS, "n_positions": LENGTH}
        dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = transformers.GPT2Config(**sizes, **dropout, bos_token_id=0, eos_token_id=0, use_cache=False)
        inner = transformers.GPT2LMHeadModel(config)
    else:
        sizes = {"hidden_size": 192, "num_hidden_layers": 6, "num_attention_heads": 3}
        sizes |= {"intermediate_size": 768, "image_size": 64, "patch_size": 8, "num_labels": 10}
        inner = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, inputs: Any) -> Any:
            return self.inner(inputs).logits

    return Logits()


def _review_classifier(*, by_opacus: bool) -> Any:
    """Embedding, LSTM, mean over time, linear: 1,081,002 parameters."""
    from torch import nn

    if by_opacus:
        from opacus.layers import DPLSTM as LSTM  # hooks cannot see inside nn.LSTM
    else:
        from torch.nn import LSTM

    class ReviewClassifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10_000, 100)
            self.recurrent = LSTM(100, 100, batch_first=True)
            self.classifier = nn.Linear(100, 2)

        def forward(self, tokens: Any) -> Any:
            states, _ = self.recurrent(self.embedding(tokens))
            return self.classifier(states.mean(dim=1))

    return ReviewClassifier()


def _memory_mib(device: Any) -> float:
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _wait(device: Any) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _page(tasks: list[str], trainers: Sequence[str], records: list[Record]) -> str:
    """One table per task."""
    parts = [f"{_machine()}"]
    for task in tasks:
        size, batch = TASKS[task]
        parts += ["", f"**{task}**: {size:,} examples, batches of about {batch:,}", ""]
        parts += ["| trainer | examples/s | times Opacus | of non-private | per CPU second | times Opacus |"]
        parts[-1] += " peak MiB | growth MiB |"
        parts += ["|---|---|---|---|---|---|---|---|"]
        typical = {trainer: _typical(records, task, trainer) for trainer in trainers}
        parts += [_row(each, typical) for each in typical.values()]
    return "\n".join(parts)


def _row(record: Record, typical: dict[str, Record]) -> str:
    if record.examples_per_second is None:
        return f"| {record.trainer} | failed: {record.failure} | | | | | | |"
    nothing = Record("", "", None, None, None, None)
    opacus, limit = typical.get("Opacus", nothing), typical.get("non-private", nothing)
    speed, busy = record.examples_per_second, record.examples_per_cpu_second
    cells = [
        record.trainer,
        f"{speed:,.0f}",
        _ratio(speed, opacus.examples_per_second),
        _ratio(speed, limit.examples_per_second),
        f"{busy:,.0f}",
        _ratio(busy, opacus.examples_per_cpu_second),
        f"{record.peak_mib:,.0f}",
        f"{record.growth_mib:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _ratio(one: float | None, other: float | None) -> str:
    return f"{one / other:.2f}" if one and other else "-"


def _typical(records: list[Record], task: str, trainer: str) -> Record:
    """The median round, with the largest memory seen."""
    own = [each for each in records if (each.task, each.trainer) == (task, trainer)]
    good = [each for each in own if each.examples_per_second is not None]
    if not good:
        return own[0]
    return Record(
        task,
        trainer,
        statistics.median(each.examples_per_second for each in good),
        statistics.median(each.examples_per_cpu_second for each in good),
        max(each.peak_mib for each in good),
        max(each.growth_mib for each in good),
    )


def _machine() -> str:
    import torch

    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"Python {platform.python_version()}, PyTorch {torch.__version__}, {os.cpu_count()} cores{gpu}"


if __name__ == "__main__":
    main()
