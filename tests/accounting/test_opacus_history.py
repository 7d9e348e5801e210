# SPDX-License-Identifier: Apache-2.0
"""Opacus's history: read as plain data, and worth what Opacus and Google say it is."""

import json
import os
import subprocess
import sys
import warnings

import pytest
from dp_accounting import dp_event as google
from dp_accounting.pld import PLDAccountant

from ggdp import AdditiveNoise, Composed, Gaussian, PoissonSampled, epsilon
from ggdp.accounting import from_opacus_state_dict

HISTORY = [(1.1, 0.01, 400), (0.9, 0.02, 100), (1.1, 0.01, 100)]


@pytest.fixture
def opacus_accountants():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch and Opacus warn of at import is theirs
        from opacus import accountants
    return accountants


def test_the_history_becomes_the_composition_it_records():
    mechanism = from_opacus_state_dict({"mechanism": "prv", "history": HISTORY})
    one = PoissonSampled(AdditiveNoise(Gaussian(std=1.1)), rate=0.01)
    other = PoissonSampled(AdditiveNoise(Gaussian(std=0.9)), rate=0.02)
    assert mechanism == Composed([(one, 500), (other, 100)])


def test_a_rate_of_one_is_no_sampling():
    mechanism = from_opacus_state_dict({"mechanism": "rdp", "history": [(3.0, 1.0, 5)]})
    assert mechanism == Composed(AdditiveNoise(Gaussian(std=3.0)), times=5)


@pytest.mark.parametrize("kind", ["PRVAccountant", "RDPAccountant"])
def test_the_state_of_opacus_own_accountants_is_read(opacus_accountants, kind):
    accountant = getattr(opacus_accountants, kind)()
    for noise_multiplier, sample_rate, steps in HISTORY:
        for _ in range(steps):
            accountant.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)
    state = accountant.state_dict()
    assert from_opacus_state_dict(state) == from_opacus_state_dict({"mechanism": "prv", "history": HISTORY})
    assert from_opacus_state_dict(json.loads(json.dumps(state))) == from_opacus_state_dict(state)


def test_epsilon_agrees_with_opacus_prv_accountant_within_its_stated_error(opacus_accountants):
    """Its answer is an upper bound that exceeds the truth by at most twice eps_error."""
    accountant = opacus_accountants.PRVAccountant()
    accountant.history = list(HISTORY)
    theirs = accountant.get_epsilon(delta=1e-5, eps_error=0.01, delta_error=1e-9)
    ours = epsilon(from_opacus_state_dict(accountant.state_dict()), delta=1e-5)
    assert ours.lower <= theirs <= ours.upper + 0.021


def test_epsilon_is_below_opacus_rdp_accountant(opacus_accountants):
    accountant = opacus_accountants.RDPAccountant()
    accountant.history = list(HISTORY)
    ours = epsilon(from_opacus_state_dict(accountant.state_dict()), delta=1e-5)
    assert ours.upper < accountant.get_epsilon(delta=1e-5) < 1.5 * ours.upper


def test_epsilon_agrees_with_google():
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for noise_multiplier, sample_rate, steps in HISTORY:
        event = google.PoissonSampledDpEvent(sample_rate, google.GaussianDpEvent(noise_multiplier))
        accountant.compose(event, steps)
    ours = epsilon(from_opacus_state_dict({"mechanism": "prv", "history": HISTORY}), delta=1e-5)
    assert ours.lower <= accountant.get_epsilon(1e-5) <= ours.upper * (1 + 1e-3)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ([], "state must be of type Mapping"),
        ({"mechanism": "prv"}, "must have the field 'history'"),
        ({"history": HISTORY}, "must have the field 'mechanism'"),
        ({"mechanism": "moments", "history": HISTORY}, "mechanism must be one of"),
        ({"mechanism": "prv", "history": []}, "nothing was released"),
        ({"mechanism": "prv", "history": [(1.0, 0.1)]}, "each entry of history"),
        ({"mechanism": "prv", "history": [(0.0, 0.1, 5)]}, "without noise are not private"),
        ({"mechanism": "prv", "history": [(1.0, 1.1, 5)]}, "sample_rate must be"),
        ({"mechanism": "prv", "history": [(1.0, 0.1, 0)]}, "num_steps must be"),
    ],
)
def test_what_is_no_history_is_refused_with_the_reason(state, reason):
    with pytest.raises(ValueError, match=reason):
        from_opacus_state_dict(state)


def test_reading_a_history_imports_neither_opacus_nor_torch():
    code = (
        "import sys; from ggdp.accounting import from_opacus_state_dict as read; "
        f"read({{'mechanism': 'prv', 'history': {HISTORY!r}}}); "
        "print([name for name in ('opacus', 'torch') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
