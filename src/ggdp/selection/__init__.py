# SPDX-License-Identifier: Apache-2.0
"""Private choices: publish an index, not the numbers behind it; and PATE, which learns from such choices."""

from ggdp.selection.aggregation import (
    ABSTAINED,
    THRESHOLD_NOISE_RATIO,
    ConfidentGGNMax,
    GGNMax,
    Labelling,
    calibrate_confident_ggnmax,
    calibrate_ggnmax,
)
from ggdp.selection.argmax import NoisyArgmax, NoisyThreshold, noisy_argmax
from ggdp.selection.comparison import (
    ArgmaxSimulation,
    calibrated_noise,
    runner_up_histograms,
    simulate_argmax,
    wrong_winner,
)
from ggdp.selection.data_dependent import Analysis, DataDependentEpsilon, data_dependent_epsilon
from ggdp.selection.pate import PateRun, Student, TeacherEnsemble, run_pate
from ggdp.selection.votes import Votes, read_labels, read_votes
from ggdp.selection.win_probability import hardmax_utility, log_plurality_loss, win_probabilities

__all__ = [
    "ABSTAINED",
    "THRESHOLD_NOISE_RATIO",
    "Analysis",
    "ArgmaxSimulation",
    "ConfidentGGNMax",
    "DataDependentEpsilon",
    "GGNMax",
    "Labelling",
    "NoisyArgmax",
    "NoisyThreshold",
    "PateRun",
    "Student",
    "TeacherEnsemble",
    "Votes",
    "calibrate_confident_ggnmax",
    "calibrate_ggnmax",
    "calibrated_noise",
    "data_dependent_epsilon",
    "hardmax_utility",
    "log_plurality_loss",
    "noisy_argmax",
    "read_labels",
    "read_votes",
    "run_pate",
    "runner_up_histograms",
    "simulate_argmax",
    "win_probabilities",
    "wrong_winner",
]
