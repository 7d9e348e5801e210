# SPDX-License-Identifier: Apache-2.0
"""The ledger: what it counts, what it answers, when it stops."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest

from ggdp import (
    Accountant,
    AdditiveNoise,
    Adjacency,
    Bounds,
    Composed,
    Gaussian,
    GeneralizedGaussian,
    OutcomeProbabilities,
    PoissonSampled,
    epsilon,
)
from ggdp.accounting.ledger.accountant import Budget
from ggdp.accounting.profile import PrivacyProfile
from ggdp.errors import BudgetExceededError
from ledger_steps import COUNT, OTHER, STEP


def gaussian_delta(mu, epsilon):
    """Balle and Wang 2018, Theorem 8."""
    with mpmath.workdps(50):
        mu, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


@pytest.fixture
def calls(monkeypatch):
    """How often the engines are asked."""
    asked = []

    def counting(real):
        def counted(profile, **others):
            asked.append(profile)
            return real(profile, **others)

        return counted

    for name in ("epsilon", "epsilon_above"):
        monkeypatch.setattr(PrivacyProfile, name, counting(getattr(PrivacyProfile, name)))
    return asked


class TestRecording:
    def test_a_ledger_answers_as_the_composition_of_what_it_recorded(self):
        ledger = Accountant()
        for _ in range(300):
            ledger.step(STEP)
        ledger.step(OTHER, times=200)
        total = Composed([(STEP, 300), (OTHER, 200)])
        assert ledger.mechanism == total
        assert ledger.epsilon(delta=1e-6) == epsilon(total, delta=1e-6)
        assert len(ledger) == 500

    def test_the_truth_lies_inside_for_gaussian_noise(self):
        ledger = Accountant()
        ledger.step(AdditiveNoise(Gaussian(std=5.0)), times=30)
        ledger.step(AdditiveNoise(Gaussian(std=2.0), sensitivity=0.5), times=4)
        mu = mpmath.sqrt(mpmath.mpf(30) / 25 + mpmath.mpf(4) / 16)
        answer = ledger.epsilon(delta=1e-5)
        assert gaussian_delta(mu, answer.lower) >= 1e-5 >= gaussian_delta(mu, answer.upper)
        at = ledger.delta(epsilon=3.0)
        assert at.lower <= gaussian_delta(mu, 3.0) <= at.upper

    def test_an_empty_ledger_costs_nothing(self):
        assert Accountant().epsilon(delta=1e-6).upper == 0.0
        assert Accountant().delta(epsilon=0.0).upper == 0.0
        assert Accountant().mechanism is None

    def test_ten_million_steps_take_one_entry(self):
        ledger = Accountant()
        for _ in range(1000):
            ledger.step(STEP, times=10_000)
        assert len(ledger) == 10**7
        assert ledger.mechanism.parts == ((STEP, 10**7),)

    def test_distinct_mechanisms_keep_the_order_they_came_in(self):
        ledger = Accountant()
        for mechanism in (OTHER, STEP, OTHER, COUNT, STEP):
            ledger.step(mechanism)
        assert [step for step, _ in ledger.mechanism.parts] == [OTHER, STEP, COUNT]

    def test_a_composition_is_recorded_as_its_steps(self):
        ledger = Accountant()
        ledger.step(Composed([(STEP, 3), (COUNT, 2)]), times=5)
        assert ledger.mechanism == Composed([(STEP, 15), (COUNT, 10)])

    @pytest.mark.parametrize("count", [0, -1, 2.5, True, "3"])
    def test_a_count_that_is_no_count_is_refused(self, count):
        ledger = Accountant()
        with pytest.raises(ValueError, match="times must be a whole number >= 1"):
            ledger.step(STEP, times=count)
        assert len(ledger) == 0

    def test_what_the_accountant_does_not_cover_is_refused_before_it_is_recorded(self):
        ledger = Accountant()
        with pytest.raises(ValueError, match="noise_multiplier must be"):
            ledger.step(AdditiveNoise(Gaussian(std=0.01)))
        assert len(ledger) == 0

    def test_repr_names_budget_adjacency_and_counts(self):
        ledger = Accountant(epsilon=2.0, delta=1e-6, adjacency=Adjacency.REMOVE)
        ledger.step(STEP, times=7)
        assert repr(ledger) == (
            "<Accountant(epsilon=2.0, delta=1e-06, adjacency='remove'): 7 releases of 1 mechanisms>"
        )


class TestAnswers:
    def test_a_question_is_computed_once_for_each_state(self, calls):
        ledger = Accountant()
        ledger.step(STEP, times=500)
        first = ledger.epsilon(delta=1e-6)
        assert ledger.epsilon(delta=1e-6) is first
        assert len(calls) == 1
        ledger.step(STEP)
        ledger.epsilon(delta=1e-6)
        assert len(calls) == 2

    def test_a_step_never_lowers_the_upper_bound(self):
        ledger = Accountant()
        ledger.step(STEP, times=200)
        uppers = []
        tiny = PoissonSampled(
            AdditiveNoise(Gaussian(std=900.0)), rate=1e-6
        )  # costs less than an interval's width
        for _ in range(10):
            uppers.append((ledger.epsilon(delta=1e-6).upper, ledger.delta(epsilon=1.0).upper))
            ledger.step(tiny)
        assert uppers == sorted(uppers)
        assert [delta for _, delta in uppers] == sorted(delta for _, delta in uppers)

    def test_a_wide_answer_is_not_followed_by_a_lower_one(self, monkeypatch):
        ledger = Accountant()
        ledger.step(STEP, times=500)
        sharp = ledger.epsilon(delta=1e-6)
        ledger = Accountant()
        ledger.step(STEP, times=499)
        wide = Bounds(sharp.lower * 0.9, sharp.lower, sharp.upper * 1.1, "wide")
        with monkeypatch.context() as patch:
            patch.setattr(PrivacyProfile, "epsilon", lambda *_, **__: wide)
            ledger.epsilon(delta=1e-6)
        ledger.step(STEP)
        after = ledger.epsilon(delta=1e-6)
        assert after.upper == wide.upper
        assert (after.lower, after.estimate) == (sharp.lower, sharp.estimate)

    @pytest.mark.parametrize("delta", [1e-101, 1.0, 1.6, math.nan, -1.0])
    def test_a_delta_out_of_range_is_refused_even_by_an_empty_ledger(self, delta):
        with pytest.raises(ValueError, match="delta must be"):
            Accountant().epsilon(delta=delta)

    def test_adjacency_reaches_the_engines(self):
        ledger = Accountant(adjacency=Adjacency.REPLACE)
        ledger.step(AdditiveNoise(Gaussian(std=4.0)), times=20)
        answer = ledger.epsilon(delta=1e-6)
        mu = 2 * mpmath.sqrt(20) / 4
        assert gaussian_delta(mu, answer.lower) >= 1e-6 >= gaussian_delta(mu, answer.upper)


class TestRemaining:
    def test_remaining_is_the_largest_count_that_fits(self):
        noise = AdditiveNoise(Gaussian(std=20.0))
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        ledger.step(noise, times=10)
        more = ledger.remaining(noise)

        def true_delta(count):
            return gaussian_delta(mpmath.sqrt(count) / 20, 2.0)

        assert true_delta(10 + more) <= 1e-6 < true_delta(10 + more + 1)

    def test_remaining_asks_few_questions(self, calls):
        more = Accountant(epsilon=4.0, delta=1e-6).remaining(STEP)
        assert len(calls) <= 16
        assert epsilon(Composed(STEP, times=more), delta=1e-6).upper <= 4.0
        assert epsilon(Composed(STEP, times=more + 1), delta=1e-6).upper > 4.0

    def test_nothing_remains_when_the_target_is_already_passed(self):
        ledger = Accountant()
        ledger.step(STEP, times=3000)
        assert ledger.remaining(STEP, epsilon=1.0, delta=1e-6) == 0

    def test_remaining_needs_a_target(self):
        with pytest.raises(ValueError, match="epsilon and delta must be given"):
            Accountant().remaining(STEP)
        with pytest.raises(ValueError, match="given together"):
            Accountant().remaining(STEP, epsilon=1.0)

    def test_remaining_never_exceeds_what_the_accountant_counts_to(self):
        faint = PoissonSampled(AdditiveNoise(Gaussian(std=1000.0)), rate=1e-3)
        ledger = Accountant(epsilon=50.0, delta=1e-6)
        ledger.step(faint, times=10**7 - 5)
        assert ledger.remaining(faint) == 5
        assert ledger.remaining(Composed(faint, times=2)) == 2

    def test_remaining_leaves_the_ledger_as_it_was(self):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        ledger.step(STEP, times=100)
        before = ledger.state_dict()
        ledger.remaining(OTHER)
        assert ledger.state_dict() == before


class TestBudget:
    def test_spend_stops_exactly_where_the_budget_ends(self):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        spent = 0
        while ledger.can_afford(STEP, times=50):
            ledger.spend(STEP, times=50)
            spent += 50
        with pytest.raises(BudgetExceededError):
            ledger.spend(STEP, times=50)
        assert len(ledger) == spent
        assert ledger.epsilon(delta=1e-6).upper <= 2.0
        assert epsilon(Composed(STEP, times=spent + 50), delta=1e-6).lower > 2.0

    def test_nothing_is_recorded_when_spend_raises(self):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        ledger.spend(STEP, times=800)
        before, answer = ledger.state_dict(), ledger.epsilon(delta=1e-6)
        with pytest.raises(BudgetExceededError, match="nothing was recorded") as caught:
            ledger.spend(STEP, times=1000)
        assert ledger.state_dict() == before
        assert ledger.epsilon(delta=1e-6) is answer
        assert (caught.value.mechanism, caught.value.times) == (STEP, 1000)
        assert caught.value.budget == Budget(2.0, 1e-6)
        ledger.spend(STEP)  # what fits still fits

    def test_a_loop_of_equal_steps_asks_about_log_n_questions(self, calls):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        for _ in range(600):
            ledger.spend(STEP)
        assert len(calls) <= 20

    def test_a_loop_in_which_mechanisms_take_turns_asks_few_questions_too(self, calls):
        ledger = Accountant(epsilon=8.0, delta=1e-6)
        noisy_count = AdditiveNoise(Gaussian(std=50.0))
        for _ in range(200):
            for mechanism in (STEP, OTHER, noisy_count):
                ledger.spend(mechanism)
        assert len(calls) <= 20
        assert ledger.epsilon(delta=1e-6).upper <= 8.0

    def test_what_was_certified_ahead_for_one_mechanism_leaves_the_budget_to_another(self):
        ledger = Accountant(epsilon=2.0, delta=1e-6)
        ledger.spend(STEP, times=100)
        left = ledger.remaining(OTHER)
        ledger.spend(OTHER, times=left)
        assert ledger.remaining(OTHER) == 0

    def test_can_afford_says_what_spend_does(self):
        ledger = Accountant(epsilon=1.0, delta=1e-6)
        assert ledger.can_afford(STEP, times=100)
        ledger.spend(STEP, times=100)
        assert not ledger.can_afford(STEP, times=1000)
        assert len(ledger) == 100

    def test_pure_privacy_adds_up_to_the_last_step(self):
        ledger = Accountant(epsilon=2.0, delta=0.0)
        for _ in range(8):
            ledger.spend(COUNT)  # a quarter each
        assert not ledger.can_afford(COUNT)
        assert ledger.delta(epsilon=2.0).upper == 0.0
        assert not Accountant(epsilon=100.0, delta=0.0).can_afford(AdditiveNoise(Gaussian(std=10.0)))

    def test_step_records_what_has_happened_even_beyond_the_budget(self):
        ledger = Accountant(epsilon=0.5, delta=1e-6)
        ledger.step(STEP, times=1000)
        assert ledger.epsilon(delta=1e-6).lower > 0.5
        with pytest.raises(BudgetExceededError):
            ledger.spend(STEP)

    def test_an_answer_that_cannot_be_computed_is_not_affordable(self):
        assert not Accountant(epsilon=2000.0, delta=1e-6).can_afford(AdditiveNoise(Gaussian(std=0.3)), 10**5)

    def test_a_ledger_without_a_budget_cannot_spend(self):
        with pytest.raises(ValueError, match=r"Accountant\(epsilon=\.\.\., delta=\.\.\.\)"):
            Accountant().spend(STEP)

    @pytest.mark.parametrize(
        ("budget", "message"),
        [
            ({"epsilon": 1.0}, "given together"),
            ({"delta": 1e-6}, "given together"),
            ({"epsilon": -1.0, "delta": 1e-6}, "epsilon must be"),
            ({"epsilon": 1.0, "delta": 1.0}, "delta must be"),
            ({"epsilon": 1.0, "delta": 1e-200}, "or 0 for pure privacy"),
        ],
    )
    def test_a_budget_that_is_none_is_refused(self, budget, message):
        with pytest.raises(ValueError, match=message):
            Accountant(**budget)


class TestThreads:
    def test_no_step_of_many_threads_is_lost(self):
        ledger = Accountant()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(16) as pool:
                mechanisms = [STEP, OTHER, COUNT, STEP] * 500
                list(pool.map(ledger.step, mechanisms))
        finally:
            sys.setswitchinterval(interval)
        assert ledger.mechanism == Composed([(STEP, 1000), (OTHER, 500), (COUNT, 500)])

    def test_many_threads_cannot_spend_more_than_there_is(self):
        ledger = Accountant(epsilon=4.0, delta=0.0)

        def spend(_):
            try:
                ledger.spend(COUNT)
            except BudgetExceededError:
                return 0
            return 1

        with ThreadPoolExecutor(16) as pool:
            spent = sum(pool.map(spend, range(200)))
        assert spent == len(ledger) == 16

    def test_ledgers_merged_crosswise_by_two_threads_do_not_wait_for_ever(self):
        one, other = Accountant(), Accountant()
        one.step(STEP)
        other.step(OTHER)
        with ThreadPoolExecutor(2) as pool:
            pairs = [(one, other), (other, one)] * 200
            merged = list(pool.map(lambda pair: len(pair[0].merge(pair[1])), pairs, timeout=30))
        assert merged == [2] * 400


class TestManyParts:
    @pytest.mark.parametrize("seed", [1, 5])
    def test_nothing_that_is_added_lowers_what_is_reported(self, seed):
        rng = np.random.default_rng(seed)
        ledger, before = Accountant(), [0.0, 0.0]
        for _ in range(4):
            noise = GeneralizedGaussian.from_noise_multiplier(
                beta=float(rng.choice([1.0, 1.5, 2.0, 3.0])), noise_multiplier=float(rng.uniform(1.0, 20.0))
            )
            step = AdditiveNoise(noise)
            if rng.random() < 0.5:
                step = PoissonSampled(step, float(rng.uniform(0.01, 0.2)))
            ledger.step(step, times=int(rng.integers(1, 30)))
            after = [ledger.epsilon(delta=1e-6).upper, ledger.delta(epsilon=1.0).upper]
            assert all(new >= old for new, old in zip(after, before, strict=True))
            before = after

    def test_hundreds_of_different_gaussian_releases_cost_what_their_closed_form_says(self):
        ledger = Accountant()
        stds = np.linspace(40.0, 90.0, 300)
        for std in stds:
            ledger.step(AdditiveNoise(Gaussian(std=float(std))))
        mu = mpmath.sqrt(mpmath.fsum(1 / mpmath.mpf(float(std)) ** 2 for std in stds))
        answer = ledger.epsilon(delta=1e-6)
        assert gaussian_delta(mu, answer.lower) >= 1e-6 >= gaussian_delta(mu, answer.upper)
        assert answer.width <= 1e-6 * answer.upper

    def test_a_search_among_two_mechanisms_takes_a_handful_of_accounts(self, calls):
        ledger = Accountant(epsilon=3.0, delta=1e-6)
        ledger.step(OTHER, times=100)
        fits = ledger.remaining(STEP)
        assert len(calls) <= 6
        total = Composed([(OTHER, 100), (STEP, fits)])
        assert epsilon(total, delta=1e-6).upper <= 3.0
        assert epsilon(Composed([(total, 1), (STEP, 1)]), delta=1e-6).upper > 3.0

    def test_a_search_among_custom_mechanisms_takes_a_handful_of_accounts_too(self, calls):
        ledger = Accountant(epsilon=3.0, delta=1e-6)
        ledger.step(OutcomeProbabilities((0.52, 0.48), (0.48, 0.52)), times=20)
        answer = OutcomeProbabilities((0.51, 0.49), (0.49, 0.51))
        fits = ledger.remaining(answer)
        assert 0 < len(calls) <= 7
        after = [Composed([(ledger.mechanism, 1), (answer, count)]) for count in (fits, fits + fits // 50)]
        assert epsilon(after[0], delta=1e-6).upper <= 3.0 < epsilon(after[1], delta=1e-6).upper
