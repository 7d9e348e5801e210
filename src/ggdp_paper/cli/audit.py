# SPDX-License-Identifier: Apache-2.0
"""`ggdp audit`: attack a private training run on a built-in task, and test its steps."""

import json as json_format
from typing import Annotated, Any

import typer

from ggdp.atomic_file import write_atomically
from ggdp.cli import options, output
from ggdp.reporting.records import record_of
from ggdp_paper.cli.train import (
    BatchSize,
    ClipNorm,
    Data,
    DeltaOrDefault,
    Device,
    Epochs,
    LearningRate,
    Momentum,
    Multiplier,
    Norm,
    Physical,
    RateOrNone,
    RecordFile,
    StepsOrNone,
    Synthetic,
    TargetEpsilon,
    TaskName,
    Vocabulary,
    check_choices,
    check_device,
    check_pairs,
    drawn,
    loaded_task,
    source_of,
)

_CONTRADICTED = 1

Method = Annotated[
    str,
    typer.Option(
        "--method",
        help="How to attack: one-run (no assumption), independent-canaries (strongest, with an --audit-delta "
        "of some percent) or repeated-runs (one canary each).",
        metavar="NAME",
    ),
]
Canaries = Annotated[
    int,
    typer.Option(
        "--canaries",
        help="How many canaries, or repeated runs.",
        parser=options.whole("--canaries", least=20, most=10**7),
        metavar="WHOLE",
    ),
]
Confidence = Annotated[
    float,
    typer.Option(
        "--confidence",
        help="Confidence with which the lower bound holds, in [0.5, 1).",
        parser=options.number("--confidence", least=0.5, below=1.0),
        metavar="NUMBER",
    ),
]
AuditDelta = Annotated[
    float | None,
    typer.Option(
        "--audit-delta",
        help="The delta at which both epsilons are compared, in (0, 0.5]; --delta if left out.",
        parser=options.number("--audit-delta", above=0.0, most=0.5),
        metavar="NUMBER",
    ),
]
Check = Annotated[
    bool,
    typer.Option("--check/--no-check", help="Also test noise, clipping and sampling of the first steps."),
]


def audit(
    beta: options.Beta,
    task: TaskName = "digits",
    epsilon: TargetEpsilon = None,
    noise_multiplier: Multiplier = None,
    delta: DeltaOrDefault = None,
    norm: Norm = None,
    rate: RateOrNone = None,
    batch_size: BatchSize = None,
    epochs: Epochs = None,
    steps: StepsOrNone = None,
    clip_norm: ClipNorm = None,
    learning_rate: LearningRate = None,
    momentum: Momentum = None,
    physical_batch_size: Physical = None,
    data: Data = None,
    synthetic: Synthetic = False,
    vocabulary: Vocabulary = "train",
    device: Device = "cpu",
    method: Method = "one-run",
    canaries: Canaries = 2000,
    confidence: Confidence = 0.95,
    audit_delta: AuditDelta = None,
    check: Check = True,
    record: RecordFile = None,
    plot: options.Plot = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Attack a private run to test its certified epsilon.

    The attack gives a lower bound of epsilon, which must not exceed the certified upper bound. It trains with
    canaries: made-up examples of a known gradient, each put into the training set with probability 1/2. It
    guesses from the noisy gradients which canaries are in, and bounds epsilon by the number of right guesses.
    Then it tests the noise, the clipping and the sampling of single steps. The exit status is 1 if the lower
    bound exceeds the certified one, or a test fails. Needs PyTorch: pip install "ggdp[torch]"; digits also
    need scikit-learn.

    Example: ggdp audit --task digits --beta 2 --epsilon 3 --epochs 5 --plot audit.png
    """
    output.need("torch", "sklearn" if task == "digits" else None, "matplotlib" if plot else None)
    import torch

    from ggdp.reporting.figures import audit_figure
    from ggdp.reporting.records import audit_record
    from ggdp.training import audit as audited
    from ggdp.training import check_noise
    from ggdp_paper.task_run import RunSettings, private_arguments

    check_choices(epsilon, noise_multiplier, data, synthetic, None, False)
    check_pairs({"--rate": rate, "--batch-size": batch_size}, {"--steps": steps, "--epochs": epochs})
    check_device(device)
    options.check_apart({"--record": record, "--plot": plot})
    settings = RunSettings(
        beta=beta, norm=norm, target_epsilon=epsilon, noise_multiplier=noise_multiplier, delta=delta,
        clip_norm=clip_norm, rate=rate, batch_size=batch_size, steps=steps, epochs=epochs,
        learning_rate=learning_rate, momentum=momentum, physical_batch_size=physical_batch_size,
    )  # fmt: skip
    source = source_of(seed)
    loaded = loaded_task(task, data, synthetic, vocabulary, device, source, seed, None)
    weights = torch.Generator().manual_seed(drawn(source))
    asked = private_arguments(loaded, settings, weights=weights)

    def generator() -> torch.Generator | None:
        return None if seed is None else torch.Generator().manual_seed(drawn(source))

    with output.progress(2 if check else 1) as tell:
        tell("training with canaries")
        found = audited(
            **asked, method=method, num_canaries=canaries, confidence=confidence, audit_delta=audit_delta,
            generator=generator(),
        )  # fmt: skip
        tell("testing the first steps")
        checked = check_noise(**asked, generator=generator()) if check else None
    told = audit_record(loaded.name, found, checked, seeded=seed is not None, synthetic=synthetic)
    whole = record_of("audit", [told])
    if record is not None:
        write_atomically(record, json_format.dumps(whole, indent=1, allow_nan=False) + "\n")
    if plot is not None:
        output.write_picture(plot, audit_figure(told))
    if json:
        output.print_json(whole)
    else:
        _print(told)
        output.tell_written(record, plot)
    if not (found.is_consistent and (checked is None or checked.passed)):
        raise typer.Exit(_CONTRADICTED)


def _print(told: dict[str, Any]) -> None:
    from ggdp.reporting.training_report import check_verdict, verdict

    upper = told["epsilon"]["upper"]
    certified = "no upper bound" if upper is None else output.rounded_up(upper, 6)
    rows = {
        "task": told["task"] + (", made-up data" if told["synthetic"] else ""),
        "shown by the attack": f"epsilon >= {output.rounded_down(told['lower_epsilon'], 4)}, "
        f"confidence {told['confidence']:g}",
        "certified": f"epsilon <= {certified} ({told['certified_by']})",
        "delta": f"{told['delta']:g}",
        "guesses": f"{told['num_correct']} of {told['num_guesses']} right, {told['num_canaries']} canaries",
        "method": f"{told['method']}; assumes {told['assumes']}",
        "attack": verdict(told),
    }
    if told["noise_check"] is not None:
        rows["steps"] = check_verdict(told["noise_check"])
    output.print_table("Audit", rows)
