# SPDX-License-Identifier: Apache-2.0
"""Ledgers that travel: saved, restored, copied, merged."""

import copy
import json
import math
import pickle

import pytest

from ggdp import (
    Accountant,
    AdditiveNoise,
    Adjacency,
    Composed,
    Laplace,
    epsilon,
)
from ledger_steps import COUNT, OTHER, STEP


class TestState:
    def test_a_ledger_survives_json(self):
        ledger = Accountant(epsilon=2.0, delta=1e-6, adjacency=Adjacency.REMOVE)
        ledger.spend(STEP, times=300)
        ledger.step(AdditiveNoise(Laplace(scale=40.0), norm=math.inf), times=2)
        written = json.dumps(ledger.state_dict(), allow_nan=False)
        again = Accountant.from_state_dict(json.loads(written))
        assert again.state_dict() == ledger.state_dict()
        assert again.mechanism == ledger.mechanism
        assert again.budget == ledger.budget
        assert again.epsilon(delta=1e-6) == ledger.epsilon(delta=1e-6)

    def test_loading_replaces_what_was_recorded(self):
        source, ledger = Accountant(), Accountant()
        source.step(OTHER, times=90)
        ledger.step(STEP, times=5)
        ledger.epsilon(delta=1e-6)
        ledger.load_state_dict(source.state_dict())
        assert ledger.mechanism == Composed(OTHER, times=90)
        assert ledger.epsilon(delta=1e-6) == epsilon(Composed(OTHER, times=90), delta=1e-6)

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda ledger: pickle.loads(pickle.dumps(ledger))])
    def test_a_copy_is_another_ledger(self, copied):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        ledger.step(STEP, times=5)
        other = copied(ledger)
        other.step(STEP)
        assert (len(ledger), len(other)) == (5, 6)
        assert other.budget == ledger.budget

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 1}, "version must be 2"),
            ({"version": True}, "version must be 2"),
            ({"kind": "list"}, "kind must be 'accountant'"),
            ({"adjacency": "swap"}, "adjacency must be one of"),
            ({"steps": {}}, "steps must be of type list"),
            ({"steps": [{"mechanism": STEP.to_dict()}]}, "step must have the fields"),
            ({"steps": [{"mechanism": STEP.to_dict(), "times": 0}]}, "times must be a whole number"),
            ({"steps": [{"mechanism": Composed(STEP).to_dict(), "times": 1}]}, "one release"),
            ({"steps": [{"mechanism": STEP.to_dict(), "times": 1}] * 2}, "every mechanism once"),
            ({"budget": {"epsilon": 1.0}}, "budget must have the fields"),
            ({"extra": 1}, "state must have the fields"),
        ],
    )
    def test_a_state_that_is_none_is_refused_and_changes_nothing(self, change, message):
        ledger = Accountant()
        ledger.step(STEP)
        before = ledger.state_dict()
        with pytest.raises(ValueError, match=message):
            ledger.load_state_dict({**before, **change})
        assert ledger.state_dict() == before

    def test_a_state_of_another_budget_or_adjacency_is_not_taken_silently(self):
        state = Accountant(epsilon=4.0, delta=1e-6).state_dict()
        with pytest.raises(ValueError, match="from_state_dict"):
            Accountant(epsilon=2.0, delta=1e-6).load_state_dict(state)
        with pytest.raises(ValueError, match="from_state_dict"):
            Accountant(epsilon=4.0, delta=1e-6, adjacency=Adjacency.ADD).load_state_dict(state)

    @pytest.mark.parametrize("damage", [None, [], {}, "x", -1, True, math.nan, [[1]]])
    def test_damage_anywhere_in_a_state_is_one_clear_error(self, damage):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        ledger.step(AdditiveNoise(Laplace(scale=40.0), norm=2.0), times=2)
        state = ledger.state_dict()

        def places(data):
            for key in list(data) if isinstance(data, dict) else range(len(data)):
                yield data, key
                if isinstance(data[key], (dict, list)):
                    yield from places(data[key])

        for data, key in places(state):
            if (key, damage) in (("budget", None), ("steps", []), ("norm", None)):
                continue  # these mean something
            kept, data[key] = data[key], damage
            with pytest.raises(ValueError, match="must"):
                Accountant.from_state_dict(state)
            data[key] = kept
        assert Accountant.from_state_dict(state).mechanism == ledger.mechanism


class TestMerge:
    def test_a_merged_ledger_costs_as_both_together(self):
        one, other = Accountant(epsilon=3.0, delta=1e-6), Accountant()
        one.step(STEP, times=300)
        other.step(OTHER, times=50)
        other.step(STEP, times=100)
        merged = one.merge(other)
        assert merged.mechanism == Composed([(STEP, 400), (OTHER, 50)])
        assert merged.budget == one.budget
        assert (len(one), len(other)) == (300, 150)
        merged.step(COUNT)
        assert len(one) == 300

    def test_ledgers_that_disagree_are_not_merged(self):
        with pytest.raises(ValueError, match="adjacency"):
            Accountant().merge(Accountant(adjacency=Adjacency.ADD))
        with pytest.raises(ValueError, match="budget"):
            Accountant(epsilon=1.0, delta=1e-6).merge(Accountant(epsilon=2.0, delta=1e-6))
        with pytest.raises(ValueError, match="other must be of type Accountant"):
            Accountant().merge({})
