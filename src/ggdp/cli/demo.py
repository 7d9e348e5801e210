# SPDX-License-Identifier: Apache-2.0
"""`ggdp demo`: a first report, on made-up data that needs no download.

A town counts the readers of its twelve library branches, each reader at one branch, and lets the readers vote
on the name of a bridge. Adding or removing one reader moves one count by one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ggdp.accounting import epsilon
from ggdp.atomic_file import write_atomically
from ggdp.calibration import calibrate_scale
from ggdp.cli import options, output
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise, Composed, PoissonSampled, release
from ggdp.reporting import pages
from ggdp.reporting.records import bounds_record, record_of
from ggdp.selection import noisy_argmax

READERS_BY_BRANCH = {
    "Abbey": 412, "Bank": 138, "Castle": 967, "Dock": 75, "East": 544, "Fair": 231,
    "Green": 689, "Hill": 49, "Inn": 318, "Lake": 820, "Mill": 156, "North": 603,
}  # fmt: skip
VOTES_BY_NAME = {"Heron": 171, "Weir": 168, "Miller": 160, "Century": 94, "Low": 57}
BETAS = (1.0, 1.5, 2.0)
TARGET: dict[str, Any] = {
    "target_epsilon": 1.0,  # of one release, and of all of `num_releases` together
    "delta": 1e-6,
    "num_releases": 10,  # which share the budget in the second comparison
    "training_std": 2.0,  # of the noise of the training run, the same for every exponent
    "training_rate": 0.01,
    "training_steps": [500, 1000, 2000, 3500, 5000],  # after which its epsilon is told
    "num_elections": 20_000,  # how often the vote is repeated
}

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        help="The folder to write report.html and report.json to.",
        parser=options.new_folder("--out"),
        metavar="FOLDER",
    ),
]


def demo(out: Out = Path("demo-report")) -> None:
    """Write a first report with pictures.

    It compares three noises of equal privacy: what they cost, what they do to some counts and to a vote.

    Needs matplotlib: pip install "ggdp[plot]".

    Example: ggdp demo --out demo-report
    """
    output.need("matplotlib")
    out.mkdir(parents=True, exist_ok=True)
    with output.progress(4 * len(BETAS)) as tell:
        record = record_of("demo", [_result(beta, tell) for beta in BETAS], target=TARGET)
    write_atomically(out / "report.json", json.dumps(record, indent=1, allow_nan=False) + "\n")
    write_atomically(out / "report.html", pages.demo_page(record, READERS_BY_BRANCH))
    title = f"Noise of equal privacy: epsilon = {TARGET['target_epsilon']:g}, delta = {TARGET['delta']:g}"
    output.print_rows(title, pages.demo_rows(record))
    typer.echo(pages.least_noise(record))
    typer.echo(f"Wrote {out / 'report.html'}")


def _result(beta: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """One exponent: the noise that meets the target, and what it does to the counts and to the vote."""
    target, delta = TARGET["target_epsilon"], TARGET["delta"]
    tell(f"beta = {beta:g}: calibrating")
    one = calibrate_scale(beta=beta, epsilon=target, delta=delta)
    several = calibrate_scale(beta=beta, epsilon=target, delta=delta, steps=TARGET["num_releases"])
    tell(f"beta = {beta:g}: accounting for a training run")
    # Gradients are clipped in the l_1 norm, where the answer for one number holds for a vector of any size.
    noise = GeneralizedGaussian.from_std(beta, TARGET["training_std"])
    step = PoissonSampled(AdditiveNoise(noise, sensitivity=1.0, norm=1.0), TARGET["training_rate"])
    training = [
        {"steps": steps, "epsilon": bounds_record(epsilon(Composed(step, times=steps), delta=delta))}
        for steps in TARGET["training_steps"]
    ]
    tell(f"beta = {beta:g}: releasing the counts")
    # One reader moves one count by one, which is 1 in the l_1 norm of all twelve.
    exact = np.array(list(READERS_BY_BRANCH.values()), dtype=np.float64)
    released = release(AdditiveNoise.histogram(one.noise), exact)
    tell(f"beta = {beta:g}: choosing a winner")
    names, votes = list(VOTES_BY_NAME), np.array(list(VOTES_BY_NAME.values()))
    elections = noisy_argmax(np.tile(votes, (TARGET["num_elections"], 1)), one.noise)
    return {
        "epsilon": bounds_record(one.achieved),
        "delta": delta,
        "method": one.achieved.method,
        "beta": beta,
        "scale": one.scale,
        "std": one.noise.std,
        "std_of_several": several.noise.std,
        "released": released.tolist(),
        "mean_absolute_error": float(np.mean(np.abs(released - exact))),
        "winner": names[int(noisy_argmax(votes, one.noise))],
        "true_winner_prob": float(np.mean(elections == np.argmax(votes))),
        "training": training,
    }
