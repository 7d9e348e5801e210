# SPDX-License-Identifier: Apache-2.0
"""Private choices: publish an index, not the numbers behind it; and PATE, which learns from such choices."""

from ggdp.selection.aggregation import ABSTAINED, ConfidentGGNMax, GGNMax, Labelling
from ggdp.selection.best_exponent import BestBeta, best_beta
from ggdp.selection.calibrated_aggregator import calibrate_confident_ggnmax, calibrate_ggnmax
from ggdp.selection.data_dependent import Analysis, DataDependentEpsilon, data_dependent_epsilon
from ggdp.selection.mechanism import NoisyArgmax, NoisyThreshold
from ggdp.selection.noisy_argmax import noisy_argmax
from ggdp.selection.pate import PateRun, run_pate
from ggdp.selection.simulation import ArgmaxSimulation, runner_up_histograms, simulate_argmax
from ggdp.selection.student import Student
from ggdp.selection.teachers import TeacherEnsemble
from ggdp.selection.votes import Votes, read_votes
from ggdp.selection.win_probability import hardmax_utility, log_plurality_loss, win_probabilities

__all__ = [
    "ABSTAINED",
    "Analysis",
    "ArgmaxSimulation",
    "BestBeta",
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
    "best_beta",
    "calibrate_confident_ggnmax",
    "calibrate_ggnmax",
    "data_dependent_epsilon",
    "hardmax_utility",
    "log_plurality_loss",
    "noisy_argmax",
    "read_votes",
    "run_pate",
    "runner_up_histograms",
    "simulate_argmax",
    "win_probabilities",
]
