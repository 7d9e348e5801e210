# SPDX-License-Identifier: Apache-2.0
"""The reports of `noise`, `outliers`, `simulate-argmax` and `demo`: noises, and comparisons of them."""

from typing import TYPE_CHECKING

from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import Adjacency
from ggdp.reporting.answer_report import one_pair
from ggdp.reporting.certified_number import certified_number
from ggdp.reporting.noisy_steps import noise_in
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import Picture, Report, detection_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_DATA = "No private data were read for this page: it is about noise alone."


def noise_report(record: Fields) -> Report:
    """A result of `noise`."""
    noise = noise_in(record)
    return Report(
        title=f"Generalized Gaussian noise, beta = {noise.beta:g}, scale = {noise.scale:.6g}",
        guarantee=None,
        no_guarantee="",
        settings={name.replace("_", " "): f"{record.real(name):.10g}" for name in record.content},
        estimated=(
            _NO_DATA,
            "What it costs to add such noise depends on the sensitivity; ask `ggdp epsilon`.",
        ),
        pictures=(density_picture([noise]),),
    )


def outlier_report(record: Fields, top: Fields) -> Report:
    """A result of `outliers`: one threshold."""
    threshold, best = record.real("threshold", above=0.0), _weight(record.inside("best"))
    weights = [_weight(one) for one in record.listed("weights")]
    shown = {"results": [{"threshold": threshold, "best": best, "weights": weights}]}

    def drawn() -> "Figure":
        from ggdp.reporting.outlier_figure import outlier_figure

        return outlier_figure([("noises of equal privacy", shown)])

    return Report(
        title=f"Noise beyond {threshold:g}, at equal privacy",
        guarantee=None,
        no_guarantee="",
        settings={
            **_target(top),
            "sampling rate": f"{top.real('rate', above=0.0, most=1.0):g}",
            "steps": f"{top.whole('steps', least=1)}",
            "sensitivity": f"{top.real('sensitivity', above=0.0):g}",
            "neighbours": str(top.adjacency()),
            "best beta": f"{best['beta']:.4g}",
            "log P(|noise| > threshold) there": f"{best['log_tail_weight']:.6g}",
        },
        proved=("Every noise compared has a certified epsilon at or below the target.",),
        estimated=(
            _NO_DATA,
            "The best beta is the least of a search in steps, not a proof that no other is less.",
        ),
        pictures=((drawn, "P(|noise| > threshold) against beta; the dot is the least."),),
    )


def simulation_report(record: Fields, top: Fields) -> Report:
    """A result of `simulate-argmax`: one epsilon."""
    gaps = top.values("gaps")
    noises = [_utility(one, len(gaps)) for one in record.listed("noises")]
    best = record.real("best_beta")
    shown = {
        "delta": top.real("delta", above=0.0, most=1.0),
        "gaps": gaps,
        "results": [
            {"target_epsilon": record.real("target_epsilon", above=0.0), "best_beta": best, "noises": noises}
        ],
    }

    def drawn() -> "Figure":
        from ggdp.reporting.pate_figure import simulation_figure

        return simulation_figure(shown)

    return Report(
        title=f"Simulated votes, epsilon = {record.real('target_epsilon'):g}",
        guarantee=None,
        no_guarantee="",
        settings={
            "target": f"epsilon = {record.real('target_epsilon'):g} at delta = {top.real('delta'):g}",
            "best beta": f"{best:.4g}",
            "area there, 1 is the most": f"{max(noise['area'] for noise in noises):.6f}",
        },
        proved=("Every noise compared is calibrated to the target by a certified bound.",),
        estimated=(_NO_DATA, "Utilities are computed, not sampled; the votes are simulated."),
        pictures=((drawn, "The chance that the true winner wins, and its area against beta."),),
    )


def demo_report(record: Fields, top: Fields) -> Report:
    """A case of `demo`: one exponent on the example data."""
    noise = noise_in(record)
    bounds = certified_number("epsilon", record.inside("epsilon"))
    promise = one_pair(bounds.upper, record.real("delta", least=0.0, most=1.0), Adjacency.ADD_REMOVE)
    return Report(
        title=f"Demonstration, beta = {noise.beta:g}",
        guarantee=promise,
        settings={
            **_target(top.inside("target")),
            "noise": f"scale = {noise.scale:.6g}, std = {noise.std:.6g}",
            "std where several releases share the budget": f"{record.real('std_of_several', above=0.0):.6g}",
            "mean absolute error of the counts": f"{record.real('mean_absolute_error', least=0.0):.4g}",
            "winner": record.text("winner"),
            "how often the winner is the true one": f"{100.0 * record.real('true_winner_prob'):.1f}%",
        },
        proved=bounds.sentences(record.text("method")),
        estimated=("The data are made up; errors and winners are of one draw of the noise.",),
        pictures=(density_picture([noise]), *detection_picture(promise)),
    )


def density_picture(noises: list[GeneralizedGaussian]) -> Picture:
    """The densities on two axes."""

    def drawn() -> "Figure":
        from ggdp.reporting.density_figure import density_figure

        return density_figure(noises, "the density of the noise", unit="released value")

    return drawn, "The density of the noise, on a linear and on a logarithmic axis."


def _target(fields: Fields) -> dict[str, str]:
    epsilon, delta = fields.real("target_epsilon", least=0.0), fields.real("delta", above=0.0, most=1.0)
    return {"target": f"epsilon = {epsilon:g} at delta = {delta:g}"}


def _weight(fields: Fields) -> dict[str, float]:
    return {
        "beta": fields.real("beta", least=1.0),
        "log_tail_weight": fields.real("log_tail_weight", most=0.0),
    }


def _utility(fields: Fields, num_gaps: int) -> dict[str, float | list[float]]:
    utility = fields.values("utility")
    if len(utility) != num_gaps:
        raise ValueError(f"{fields.place}.utility must hold {num_gaps} numbers, as gaps, got {len(utility)}")
    return {"beta": fields.real("beta", least=1.0), "area": fields.real("area"), "utility": utility}
