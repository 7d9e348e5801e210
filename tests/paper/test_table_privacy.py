# SPDX-License-Identifier: Apache-2.0
"""The privacy of Table 1's runs by an accountant of others'."""

import math

import dp_accounting
from dp_accounting.pld import PLDAccountant

from ggdp_paper.record import measured

RECORD = measured("table1_cifar10")


def test_the_runs_of_table_1_have_the_privacy_they_claim_by_another_accountant():
    """Google's accountant rounds up: a run with all its releases must come out just above its target."""
    training = RECORD["config"]["training"]
    rate = training["shared"]["batch_size"] / 50_000
    rows = [row for row in RECORD["numbers"]["rows"] if row["setting"] == "beta2"]
    assert len(rows) == 3
    for row in rows:
        noise = dp_accounting.GaussianDpEvent(row["noise_multiplier"])
        step = dp_accounting.PoissonSampledDpEvent(rate, noise)
        steps = math.ceil(training["epochs"][f"{row['epsilon']:g}"] / rate)
        peer = PLDAccountant(value_discretization_interval=1e-4)
        peer.compose(dp_accounting.SelfComposedDpEvent(step, steps))
        peer.compose(dp_accounting.GaussianDpEvent(training["standardisation_noise"]))
        assert row["epsilon"] - 1e-6 <= peer.get_epsilon(1e-6) <= row["epsilon"] + 1e-5
        assert row["certified_epsilon"] <= row["epsilon"]
