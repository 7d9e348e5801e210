# SPDX-License-Identifier: Apache-2.0
"""A run of noisy steps, read back from a record: its settings, what it takes on trust, its noise."""

import math
from typing import TYPE_CHECKING, Any

from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise
from ggdp.reporting.privacy_records import Run
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run_in(record: Fields) -> Run:
    """The run that `Run.to_dict` described."""
    sensitivity = record.real("sensitivity", above=0.0)
    noise = noise_in(record)
    if "norm" in record or "dimension" in record:
        norm, dimension = (extended(record.value(name)) for name in ("norm", "dimension"))
        step = AdditiveNoise(noise, sensitivity, norm, dimension)
    else:
        step = AdditiveNoise(noise, sensitivity)
    return Run(
        step, record.real("rate", above=0.0, most=1.0), record.whole("steps", least=1), record.adjacency()
    )


def noise_in(record: Fields) -> GeneralizedGaussian:
    """The noise of one number."""
    return GeneralizedGaussian(record.real("beta"), record.real("scale"))


def extended(value: Any) -> Any:
    """A value with infinity as a number again, which records have as text."""
    return math.inf if value == "inf" else value


def settings_of(run: Run) -> dict[str, str]:
    """Everything that the cost of the run depends on."""
    noise, step = run.step.noise, run.step
    multiplier = noise.scale / (math.sqrt(2.0) * step.sensitivity)
    vector = (
        {"norm of the sensitivity": norm_of(step), "dimension": _dimension(step)} if _is_vector(step) else {}
    )
    return {
        "noise": f"beta = {noise.beta:g}, scale = {noise.scale:.8g}, std = {noise.std:.8g}",
        "noise multiplier": f"{multiplier:.8g}",
        "sensitivity": f"{step.sensitivity:g}",
        **vector,
        "sampling rate": f"{run.rate:.8g}",
        "steps": f"{run.steps}",
    }


def norm_of(step: AdditiveNoise) -> str:
    """The norm in words."""
    matched = ", matched to the noise" if isinstance(step.norm, str) else ""
    return f"l_{step.p:.8g}{matched}"


def promise_of(run: Run) -> str:
    """What the certificate takes on trust."""
    step = run.step
    if _is_vector(step):
        moved = f"the released vector by no more than the sensitivity (norm: {norm_of(step)})"
        size = (
            f"that the vector has {_dimension(step)} numbers at most, " if step.dimension != math.inf else ""
        )
        fresh = "each number of it in each step gets noise of its own"
    else:
        moved, size = "the released value by no more than the sensitivity", "that the value is one number, "
        fresh = "each step draws fresh noise"
    sampled = (
        "that a step takes each record with the sampling rate, independently, " if run.rate < 1.0 else ""
    )
    return (
        f"Not checked: that one record, added or removed, moves {moved} in every step, {size}{sampled}and "
        f"that {fresh}. That is the caller's promise."
    )


def noise_picture(run: Run) -> tuple[Picture, ...]:
    """The density of the noise."""
    on_each = " on each number" if _is_vector(run.step) else ""

    def drawn() -> "Figure":
        from ggdp.reporting.density_figure import density_figure

        return density_figure([run.step.noise], f"the noise{on_each} of one step", unit="released value")

    return ((drawn, f"The density of the noise{on_each}, on a linear and on a logarithmic axis."),)


def _is_vector(step: AdditiveNoise) -> bool:
    return step.dimension != 1


def _dimension(step: AdditiveNoise) -> str:
    return "any" if step.dimension == math.inf else f"{step.dimension:,}"
