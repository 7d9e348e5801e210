# SPDX-License-Identifier: Apache-2.0
"""The paper's figures and tables, by the names that the command line knows.

The numbers are the paper's own. `fig4` is the Adult panel of its Figure 4, and `fig4_imdb`,
`fig4_imdb_multipliers` (fewer exponents, more noise multipliers and runs), `fig4_cifar10`,
`fig4_cifar10_matched` (in another norm) and `fig4_svhn` are the others; `table1_rdp` is the first row of its
Table 1; `fig7` makes its Figures 7 and 8, `fig9` its Figures 9 to 16. Its Figure 6 is a diagram.
`accountants` runs what the paper compares its accounting with, or says of it; `training_choices` tries what
it says of batches.
"""

import importlib

from ggdp import arguments
from ggdp_paper.experiment import Experiment

_ADDRESSES = {
    "fig1": "densities:EXPERIMENT",
    "fig2": "epsilon_by_sigma:EXPERIMENT",
    "fig3": "pate_accuracy:EXPERIMENT",
    "fig4": "training_accuracy:EXPERIMENT",
    "fig4_imdb": "training_accuracy:REVIEWS",
    "fig4_imdb_multipliers": "training_accuracy:REVIEWS_MULTIPLIERS",
    "fig4_cifar10": "training_accuracy:CIFAR10",
    "fig4_cifar10_matched": "training_accuracy:CIFAR10_MATCHED",
    "fig4_svhn": "training_accuracy:SVHN",
    "table1": "cifar_table:EXPERIMENT",
    "table1_rdp": "cifar_table:RENYI",
    "fig5": "tail_weight:EXPERIMENT",
    "fig7": "hardmax:EXPERIMENT",
    "fig9": "fixed_settings:EXPERIMENT",
    "training_choices": "training_choices:EXPERIMENT",
    "speed": "sampling_speed:EXPERIMENT",
    "accountants": "accountants:EXPERIMENT",
}

NAMES = tuple(_ADDRESSES)


def experiment_named(name: str) -> Experiment:
    """The figure of this name."""
    arguments.one_of("figure", name, NAMES, hint="or all")
    module, _, constant = _ADDRESSES[name].partition(":")
    experiment: Experiment = getattr(importlib.import_module(f"{__name__}.{module}"), constant)
    return experiment


def chosen(names: list[str]) -> list[Experiment]:
    """The figures of these names in the order of the paper, each once; `all` and no name mean all."""
    wanted = {experiment_named(name).name for name in names if name != "all"}
    everything = not names or "all" in names
    return [experiment_named(name) for name in NAMES if everything or name in wanted]
