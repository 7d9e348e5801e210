# SPDX-License-Identifier: Apache-2.0
"""All figures and tables, by the names that the command line knows."""

import importlib

from ggdp import arguments
from ggdp.reproduction.experiment import Experiment

_MODULES = {
    "fig1": "densities",
    "fig2": "epsilon_by_sigma",
    "fig3": "pate_accuracy",
    "fig4": "tail_weight",
    "fig5": "hardmax",
    "fig6": "training_accuracy",
    "fig6_imdb": "review_accuracy",
    "table1": "cifar_table",
    "fig8": "fixed_settings",
    "speed": "sampling_speed",
}

NAMES = tuple(_MODULES)


def experiment_named(name: str) -> Experiment:
    """The figure of this name."""
    arguments.one_of("figure", name, NAMES, hint="or all")
    module = importlib.import_module(f"ggdp.reproduction.{_MODULES[name]}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


def chosen(names: list[str]) -> list[Experiment]:
    """The figures of these names in the order of the paper, each once; `all` and no name mean all."""
    if not names or "all" in names:
        names = list(NAMES)
    wanted = {experiment_named(name).name for name in names}
    return [experiment_named(name) for name in NAMES if name in wanted]
