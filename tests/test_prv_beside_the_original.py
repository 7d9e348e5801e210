# SPDX-License-Identifier: Apache-2.0
"""ggdp.prv beside prv_accountant: the same names and arguments, and answers inside its bounds."""

import inspect

import numpy as np
import prv_accountant
import pytest
from prv_accountant import dpsgd, other_accountants

from ggdp import prv

PUBLIC = [name for name in dir(prv_accountant) if inspect.isclass(getattr(prv_accountant, name))]
THEIRS = {
    **{name: getattr(prv_accountant, name) for name in PUBLIC},
    "DPSGDAccountant": dpsgd.DPSGDAccountant,
    "find_noise_multiplier": dpsgd.find_noise_multiplier,
    "RDP": other_accountants.RDP,
}
PRVS = [
    ("PoissonSubsampledGaussianMechanism", (0.01, 1.0), 300),
    ("GaussianMechanism", (8.0,), 20),
    ("LaplaceMechanism", (0.1,), 60),
    ("PureDPMechanism", (0.1,), 30),
    ("ApproximateDPMechanism", (0.1, 1e-8), 30),
]


@pytest.mark.parametrize("name", THEIRS)
def test_every_public_name_takes_the_arguments_of_theirs_in_their_order(name):
    theirs, ours = THEIRS[name], getattr(prv, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    methods = {one for one in vars(theirs) if not one.startswith("_")} if inspect.isclass(theirs) else set()
    for method in methods - {"pm_inf"}:
        given = list(inspect.signature(getattr(theirs, method)).parameters)
        assert list(inspect.signature(getattr(ours, method)).parameters)[: len(given)] == given


@pytest.mark.parametrize(("name", "arguments", "times"), PRVS)
def test_our_bounds_lie_inside_theirs(name, arguments, times):
    answers = []
    for library in (prv_accountant, prv):
        one = getattr(library, name)(*arguments)
        accountant = library.PRVAccountant(one, eps_error=0.05, delta_error=1e-9, max_self_compositions=times)
        answers.append((accountant.compute_epsilon(1e-5, times), accountant.compute_delta(0.5, times)))
    for theirs, ours in zip(*answers, strict=True):
        assert theirs[0] <= ours[0] <= ours[1] <= ours[2] <= theirs[2]


@pytest.mark.parametrize(("name", "arguments", "times"), PRVS)
def test_distribution_functions_are_the_same(name, arguments, times):
    points = np.linspace(-3.0, 3.0, 41) + 1e-6
    theirs, ours = (getattr(library, name)(*arguments) for library in (prv_accountant, prv))
    assert ours.cdf(points) == pytest.approx(np.asarray(theirs.cdf(points), dtype=float), abs=1e-13)
    assert ours.pm_inf == theirs.pm_inf
