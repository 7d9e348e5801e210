# SPDX-License-Identifier: Apache-2.0
"""`ggdp train`: private training on a built-in task, and its record."""

import json as json_format
import math
import platform
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ggdp import __version__
from ggdp.accounting import Bounds
from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output
from ggdp.mechanisms import Adjacency
from ggdp.reporting.records import SEED_CAVEAT, bounds_record, record_of
from ggdp.reporting.training_report import CHOICE_CAVEAT

if TYPE_CHECKING:
    from ggdp.training.report import EpochRow, FitReport
    from ggdp_paper.task_run import TaskRun
    from ggdp_paper.tasks import Task


MOST_STEPS = 10**9


def _within(option: str, help_text: str, **limits: float) -> Any:
    return typer.Option(option, help=help_text, parser=options.number(option, **limits), metavar="NUMBER")


def _positive(option: str, help_text: str, **limits: float) -> Any:
    return _within(option, help_text, above=0.0, **limits)


def _count(option: str, help_text: str, **limits: int) -> Any:
    parser = options.whole(option, least=1, **limits)
    return typer.Option(option, help=help_text, parser=parser, metavar="WHOLE")


def norm_of_gradients(text: str) -> float | str:
    """A norm that a gradient of 32-bit numbers has."""
    norm = options.norm(text)
    if isinstance(norm, float) and 1e30 < norm < math.inf:
        raise typer.BadParameter(f"--norm must be a number in [1, 1e+30], or inf, or matched, got {norm}")
    return norm


TaskName = Annotated[
    str,
    typer.Option(
        "--task",
        help="What is learned: digits (needs no files), adult, imdb, cifar10 or svhn.",
        metavar="NAME",
    ),
]
TargetEpsilon = Annotated[
    float | None, _positive("--epsilon", "Budget: the noise is the least that keeps to it.")
]
Multiplier = Annotated[
    float | None,
    _positive("--noise-multiplier", "Noise as scale / (sqrt(2) * clip), instead of --epsilon.", most=1e6),
]
DeltaOrDefault = Annotated[
    float | None,
    _within(
        "--delta",
        "Privacy parameter delta, in (0, 0.5], the task's default is 1e-6; or 0, with --beta 1 --norm 1.",
        least=0.0,
        most=0.5,
    ),
]
Norm = Annotated[
    str | None,
    typer.Option(
        "--norm",
        help="Clip gradients in this norm: p from 1 to 1e30, inf, or matched; 2 if left out.",
        parser=norm_of_gradients,
        metavar="P",
    ),
]
RateOrNone = Annotated[
    float | None,
    _within("--rate", "Poisson sampling rate, in [1e-9, 1].", least=1e-9, most=1.0),
]
SamplingText = Annotated[
    str | None,
    typer.Option(
        "--sampling",
        help="How batches are drawn and accounted: poisson (if left out), fixed-size, truncated-poisson, "
        "with-replacement, allocation or shuffled, of the size that --rate or --batch-size gives; or with "
        "numbers, as fixed-size:256/50000.",
        metavar="KIND",
    ),
]
Momentum = Annotated[
    float | None,
    _within(
        "--momentum",
        "Momentum of gradient descent, in [0, 1).",
        least=0.0,
        below=1.0,
    ),
]
Average = Annotated[
    float | None,
    _within(
        "--average",
        "Score a running average of the weights with this decay, in [0, 1); it costs no privacy.",
        least=0.0,
        below=1.0,
    ),
]
BatchSize = Annotated[
    float | None, _within("--batch-size", "Expected batch, >= 0.001, instead of --rate.", least=1e-3)
]
Epochs = Annotated[float | None, _positive("--epochs", "Expected passes over the data.", most=1e6)]
StepsOrNone = Annotated[
    int | None, _count("--steps", "Steps of the run, instead of --epochs.", most=MOST_STEPS)
]
ClipNorm = Annotated[
    float | None,
    _within(
        "--clip-norm", "Largest norm of one example's gradient, in [1e-30, 1e30].", least=1e-30, most=1e30
    ),
]
LearningRate = Annotated[float | None, _positive("--learning-rate", "Learning rate, up to 1e38.", most=1e38)]
Views = Annotated[
    int,
    _count(
        "--views", "For cifar10: 2 trains on every image and its mirror image, at the same epsilon.", most=2
    ),
]
Physical = Annotated[
    int | None,
    _count("--physical-batch-size", "Most examples in memory at a time; changes no result.", most=MOST_STEPS),
]
Patience = Annotated[
    int | None, _count("--patience", "Stop after so many epochs without a better score.", most=MOST_STEPS)
]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of the task's files as their authors publish them.", metavar="FOLDER"
    ),
]
Synthetic = Annotated[bool, typer.Option("--synthetic", help="Small made-up data, for a smoke run.")]
Vocabulary = Annotated[
    str,
    typer.Option(
        "--vocabulary",
        help="For imdb, where its words are from: train (not private), unlabelled, or a file.",
        metavar="NAME",
    ),
]
Device = Annotated[
    str, typer.Option("--device", help="Where to train: cpu, cuda, cuda:1, ...", metavar="NAME")
]
CheckpointFolder = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        help="Keep the run in this folder, so that --resume can go on with it.",
        parser=options.new_folder("--checkpoint"),
        metavar="FOLDER",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run that --checkpoint holds.")]
RecordFile = Annotated[
    Path | None,
    typer.Option(
        "--record",
        help="Write everything about the run to this JSON file.",
        parser=options.new_file("--record"),
        metavar="FILE",
    ),
]


def train(
    beta: options.Beta,
    task: TaskName = "digits",
    epsilon: TargetEpsilon = None,
    noise_multiplier: Multiplier = None,
    delta: DeltaOrDefault = None,
    norm: Norm = None,
    rate: RateOrNone = None,
    batch_size: BatchSize = None,
    sampling: SamplingText = None,
    adjacency: options.AdjacencyChoice = Adjacency.ADD_REMOVE,
    epochs: Epochs = None,
    steps: StepsOrNone = None,
    clip_norm: ClipNorm = None,
    learning_rate: LearningRate = None,
    momentum: Momentum = None,
    average: Average = None,
    patience: Patience = None,
    views: Views = 1,
    physical_batch_size: Physical = None,
    data: Data = None,
    synthetic: Synthetic = False,
    vocabulary: Vocabulary = "train",
    device: Device = "cpu",
    checkpoint: CheckpointFolder = None,
    resume: Resume = False,
    record: RecordFile = None,
    plot: options.Plot = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Train a model with privacy for its training data.

    Gradients of single examples are clipped, summed over a random batch and released with noise
    (beta-DP-SGD). Batches are Poisson samples unless --sampling says otherwise. Options that are left out
    have values that suit the task. Training stops before the budget is exceeded. Needs PyTorch: pip install
    "ggdp[torch]"; digits also need scikit-learn, and --plot matplotlib: pip install "ggdp[reproduce]" brings
    all three.

    Example: ggdp train --task digits --beta 1.5 --norm 2 --epsilon 3 --plot run.png
    """
    output.need("torch", "sklearn" if task == "digits" else None, "matplotlib" if plot else None)
    import torch

    from ggdp_paper.task_run import RunSettings, prepare

    check_choices(epsilon, noise_multiplier, data, synthetic, checkpoint, resume)
    check_pairs({"--rate": rate, "--batch-size": batch_size}, {"--steps": steps, "--epochs": epochs})
    check_device(device)
    options.check_apart({"--record": record, "--plot": plot})
    settings = RunSettings(
        beta=beta, norm=norm, target_epsilon=epsilon, noise_multiplier=noise_multiplier, delta=delta,
        clip_norm=clip_norm, rate=rate, batch_size=batch_size, steps=steps, epochs=epochs,
        learning_rate=learning_rate, momentum=momentum, patience=patience,
        averages=() if average is None else (average,), physical_batch_size=physical_batch_size,
        sampling=sampling, adjacency=adjacency,
    )  # fmt: skip
    source = source_of(seed)
    kept = None if checkpoint is None else checkpoint / "preprocessing.json"
    loaded = loaded_task(task, data, synthetic, vocabulary, device, source, seed, kept, views)
    noise = None if seed is None else torch.Generator().manual_seed(drawn(source))
    weights = torch.Generator().manual_seed(drawn(source))
    run = prepare(loaded, settings, generator=noise, weights=weights)
    report = _run(run, checkpoint, resume, quiet=json)
    spent = run.private.accountant.epsilon(delta=report.plan.delta)
    asked = {"seed": seed, "learning_rate": run.private.optimizer.param_groups[0]["lr"],
             "momentum": run.private.optimizer.param_groups[0]["momentum"], "average": average,
             "patience": patience, "views": views, "device": device}  # fmt: skip
    found = training_record(loaded, report, spent, asked, seeded=seed is not None, synthetic=synthetic)
    whole = record_of("train", [found])
    if record is not None:
        write_atomically(record, json_format.dumps(whole, indent=1, allow_nan=False) + "\n")
    if plot is not None:
        from ggdp.reporting.figures import training_figure

        output.write_picture(plot, training_figure(found))
    if json:
        output.print_json(whole)
    else:
        _print(found)
        output.tell_written(record, plot)
    if seed is not None:
        output.warn(output.SEEDED)


def source_of(seed: int | None) -> Any:
    """A torch generator from the seed, or from the system's entropy."""
    import torch

    source = torch.Generator()
    if seed is None:
        source.seed()
    else:
        source.manual_seed(seed)
    return source


def check_choices(
    epsilon: float | None,
    noise_multiplier: float | None,
    data: Path | None,
    synthetic: bool,
    checkpoint: Path | None,
    resume: bool,
) -> None:
    """Refuse options that say too little or too much."""
    if (epsilon is None) == (noise_multiplier is None):
        got = "none" if epsilon is None else "both"
        raise ValueError(f"exactly one of --epsilon and --noise-multiplier must be given, got {got}")
    if data is not None and synthetic:
        raise ValueError("--data and --synthetic exclude each other, got both")
    if resume and checkpoint is None:
        raise ValueError("--resume needs --checkpoint, the folder of the run to go on with")


def check_pairs(*pairs: dict[str, float | None]) -> None:
    """Refuse two options that say the same thing."""
    for pair in pairs:
        if None not in pair.values():
            first, second = pair
            raise ValueError(f"{first} and {second} say the same thing; give one of them, got both")


def check_device(device: str) -> None:
    """Refuse before the work what would fail in it."""
    import torch

    reason = "it holds no numbers"
    try:
        if torch.empty(1, device=device).add_(1.0).device.type != "meta":
            return
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = textwrap.shorten(str(error).splitlines()[0], 200)
    raise ValueError(f"--device must be one that PyTorch can use, got {device!r}: {reason}")


def loaded_task(
    task: str,
    data: Path | None,
    synthetic: bool,
    vocabulary: str,
    device: str,
    source: Any,
    seed: int | None,
    kept: Path | None,
    views: int = 1,
) -> "Task":
    """The task that the options name."""
    import numpy as np

    from ggdp_paper.tasks import load_task

    rng = None if seed is None else np.random.default_rng(drawn(source))
    return load_task(
        task, data=data, synthetic=synthetic, generator=source, rng=rng, device=device, vocabulary=vocabulary,
        kept=kept, views=views,
    )  # fmt: skip


def drawn(source: Any) -> int:
    """A seed for a generator of its own."""
    import torch

    return int(torch.randint(2**62, (), generator=source))


def _run(run: "TaskRun", checkpoint: Path | None, resume: bool, *, quiet: bool) -> "FitReport":
    if quiet:
        return run.fit(checkpoint=checkpoint, resume=resume)
    steps = run.private.plan.steps
    with output.progress(steps, "epoch 1") as tell:

        def tell_row(row: "EpochRow") -> None:
            upper = output.rounded_up(row.epsilon, 5) if math.isfinite(row.epsilon) else "without a bound"
            line = f"epoch {row.epoch}: epsilon {upper}, accuracy {row.score:.4f}"
            tell(line=line)
            tell(f"{row.steps} of {steps} steps", completed=row.steps)

        return run.fit(checkpoint=checkpoint, resume=resume, on_epoch=tell_row)


_NEIGHBOURS = {
    "add-remove": "one example added or removed",
    "add": "one example added",
    "remove": "one example removed",
    "replace": "one example in place of another",
}


def _print(found: dict[str, Any]) -> None:
    upper = found["epsilon"]["upper"]
    spent = "no bound" if upper is None else output.rounded_up(upper, 6)
    rows = {
        "task": found["task"] + (", made-up data" if found["synthetic"] else ""),
        "test accuracy": f"{found['accuracy']:.4f}",
        "best epoch": f"{found['best']['accuracy']:.4f} after epoch {found['best']['epoch']}",
        "epsilon": f"{spent} at delta = {found['delta']:g} ({found['method']})",
        "neighbours": _NEIGHBOURS[found["adjacency"]],
        "noise": f"beta = {found['beta']:g}, scale {found['scale']:.6g}, "
        f"noise multiplier {found['noise_multiplier']:.6g}",
        "clipping": f"{found['clip_norm']:g} in the l_{found['norm']:.4g} norm"
        if not isinstance(found["norm"], str)
        else f"{found['clip_norm']:g} in the l_inf norm",
        "steps": f"{found['steps']} of {found['plan']['steps']}, rate {found['rate']:.4g}",
        "batches": found["plan"]["sampling"] or "Poisson samples",
        "stopped by": found["stopped_by"],
        "seconds": f"{found['seconds']:.1f}",
    }
    output.print_table("Private training", rows)
    for caveat in found["caveats"]:
        if caveat != SEED_CAVEAT:  # which is a warning
            typer.echo(f"note: {caveat}", err=True)


def training_record(
    task: "Task",
    report: "FitReport",
    spent: Bounds,
    asked: Mapping[str, Any],
    *,
    seeded: bool,
    synthetic: bool,
) -> dict[str, Any]:
    """The result of a finished run, for JSON: a summary, then `plan` and `rows` as the run reported them.

    Args:
        task: what was trained.
        report: what `fit` returned.
        spent: epsilon at the end of the run.
        asked: the command's options that a reader needs to repeat the run.
        seeded: whether noise came from a seed, in which case nothing here is private.
        synthetic: whether the data were made up.
    """
    plan = report.plan
    return {
        "task": task.name,
        "synthetic": synthetic,
        "seeded": seeded,
        "asked": dict(asked),
        "adjacency": str(plan.adjacency),
        "delta": plan.delta,
        "target_epsilon": plan.max_epsilon,
        "epsilon": bounds_record(spent),
        "beta": plan.noise.beta,
        "scale": plan.noise.scale,
        "noise_multiplier": plan.noise_multiplier,
        "clip_norm": plan.clip_norm,
        "norm": _plain(plan.p),
        "rate": plan.rate,
        "steps": report.last.steps,
        "accuracy": report.last.score,
        "best": {"epoch": report.best.epoch, "accuracy": report.best.score},
        "seconds": report.last.seconds,
        **_plain(report.to_dict()),
        "rows": [_row(row) for row in report.rows],
        "caveats": [*task.caveats, CHOICE_CAVEAT, *([SEED_CAVEAT] if seeded else [])],
        "versions": _versions(),
    }


def _row(row: "EpochRow") -> dict[str, Any]:
    """An epoch, with its epsilon as bounds; a row has no estimate between them."""
    plain = {name: value for name, value in asdict(row).items() if name != "epsilon_lower"}
    upper = row.epsilon if math.isfinite(row.epsilon) else None
    return plain | {
        "epsilon": {"lower": row.epsilon_lower, "estimate": None, "upper": upper},
        "score": None if math.isnan(row.score) else row.score,
    }


def _plain(value: Any) -> Any:
    """The value with infinity in words, because JSON has no infinity; only a norm can be infinite here."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return "inf" if value == math.inf else value


def _versions() -> dict[str, str]:
    import numpy
    import torch

    return {
        "ggdp": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "torch": str(torch.__version__),
    }
