# SPDX-License-Identifier: Apache-2.0
"""Audits: lower bounds that hold with their confidence, right runs that stay below their claim, and planted
faults.

The faults are planted in the real path: in the noise, the clipping and the sampler that `make_private` uses.
"""

import dataclasses
import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ggdp import GeneralizedGaussian
from ggdp.torch import add_noise_, audit, check_noise, fit
from ggdp.training import batch_draws
from ggdp.training import private as training_private
from ggdp.training.audit import (
    one_run_guesses,
    one_run_lower_epsilon,
    one_run_p_value,
    separated_guesses,
    separated_lower_epsilon,
)
from ggdp.training.randomness import Randomness


@dataclasses.dataclass(frozen=True)
class Setting:
    """Twenty steps of so little noise that each of the faults below shows; see benchmarks/audit.py."""

    beta: float
    norm: float | str
    noise_multiplier: float
    rate: float


SETTINGS = [Setting(1.0, 1.0, 0.35, 0.1), Setting(1.5, "matched", 0.5, 0.05), Setting(2.0, 2.0, 0.6, 0.05)]
CONFIDENCE = 0.999


def parts(seed):
    generator = torch.Generator().manual_seed(seed)
    data = TensorDataset(torch.randn(50, 3, generator=generator), torch.arange(50) % 2)
    model = nn.Linear(3, 2)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=5), generator


def audited(setting, seed=1, **more):
    model, optimizer, loader, generator = parts(seed)
    asked = {
        "method": "independent-canaries",
        "num_canaries": 20_000,
        "audit_delta": 0.05,
        "steps": 20,
        "confidence": CONFIDENCE,
        **more,
    }
    return audit(
        model, optimizer, loader, beta=setting.beta, clip_norm=1.0, norm=setting.norm,
        rate=setting.rate, delta=1e-5,
        noise_multiplier=setting.noise_multiplier, generator=generator, **asked,
    )  # fmt: skip


# The bounds themselves.


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "delta", "printed"),
    [(1000, 100, 75, 1e-4, 0.673), (100_000, 1510, 1439, 1e-5, 2.675)],
)
def test_the_bound_of_one_run_is_what_its_authors_print(canaries, guesses, correct, delta, printed):
    """Steinke, Nasr, Jagielski, arXiv:2305.08846v1, Appendix D and section 7; the second is cut off there."""
    shown = one_run_lower_epsilon(canaries, guesses, correct, delta=delta, confidence=0.95)
    assert printed - 5e-4 < shown < printed + 1e-3


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct", "epsilon", "delta"),
    [(50, 20, 17, 1.0, 0.0), (50, 20, 17, 1.0, 1e-3), (1000, 300, 299, 4.0, 1e-5), (40, 40, 40, 2.0, 1e-4)],
)
def test_a_p_value_is_at_least_the_exact_one_and_hardly_more(canaries, guesses, correct, epsilon, delta):
    with mpmath.workdps(40):
        success = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))

        def mass(k):
            return mpmath.binomial(guesses, k) * success**k * (1 - success) ** (guesses - k)

        tail = mpmath.fsum(mass(k) for k in range(correct, guesses + 1))
        sums = itertools.accumulate(mass(correct - i) for i in range(1, correct + 1))
        below = [total / i for i, total in enumerate(sums, start=1)]
        exact = tail + 2 * canaries * mpmath.mpf(delta) * max(below)
        found = one_run_p_value(canaries, guesses, correct, epsilon, delta)
        assert exact < found < exact * (1 + mpmath.mpf("2e-6"))


@pytest.mark.parametrize(
    ("hits", "alarms", "delta"), [(90, 10, 0.0), (90, 10, 0.1), (100, 0, 0.0), (60, 40, 0.05)]
)
def test_clopper_and_pearson_are_met_on_the_safe_side(hits, alarms, delta):
    low = stats.binomtest(hits, 100).proportion_ci(0.95, method="exact").low
    high = stats.binomtest(alarms, 100).proportion_ci(0.95, method="exact").high
    exact = max(math.log((low - delta) / high), 1e-9)
    found = separated_lower_epsilon(hits, 100, alarms, 100, delta=delta, confidence=0.95)
    assert exact - 1e-5 < found < exact
    assert (found == 0.0) == (exact == 1e-9)


def test_nothing_right_or_nothing_told_apart_shows_nothing():
    assert one_run_lower_epsilon(100, 50, 0, delta=0.0, confidence=0.95) == 0.0
    assert one_run_lower_epsilon(100, 50, 25, delta=0.0, confidence=0.95) == 0.0
    assert separated_lower_epsilon(0, 100, 0, 100, delta=0.0, confidence=0.95) == 0.0
    assert separated_lower_epsilon(50, 100, 50, 100, delta=0.1, confidence=0.95) == 0.0


@pytest.mark.parametrize("guess", [one_run_guesses, separated_guesses])
def test_a_lower_bound_holds_with_its_confidence_and_is_not_idle(guess):
    """Laplace noise shifted by 1 has epsilon 1 at delta = 0, exactly, and its canaries are independent."""
    rng, law, shown = np.random.default_rng(3), GeneralizedGaussian(1.0, 1.0), []
    for _ in range(60):
        included = rng.random(1000) < 0.5
        seen = law.sample(1000, rng=rng) + included
        scores = np.abs(seen) - np.abs(seen - 1.0)
        shown.append(guess(scores[None], included, delta=0.0, confidence=0.9).lower_epsilon)
    assert sum(value > 1.0 for value in shown) <= 6 + 4 * math.sqrt(5.4)  # 10% of 60, four deviations more
    assert max(shown) > 0.6


def test_guesses_are_not_told_by_rounding_alone():
    """Evidence that differs in its last bits by membership, as sums in floating point do (Mironov 2012)."""
    included = np.arange(1000) % 2 == 0
    scores = np.where(included, 1.0 + 1e-12, 1.0 - 1e-12)
    for guess in (one_run_guesses, separated_guesses):
        assert guess(scores[None], included, delta=0.0, confidence=0.9).lower_epsilon == 0.0


def test_what_one_run_shows_of_dependent_canaries_is_still_below_epsilon():
    """With probability 2% a run reveals all of its canaries at once, otherwise none: (0, 0.02)-private."""
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(200):
        included = rng.random(100) < 0.5
        scores = np.where(included, 1.0, -1.0) * (1.0 if rng.random() < 0.02 else 0.0) + 1e-9 * rng.normal(
            size=100
        )
        wrong += one_run_guesses(scores[None], included, delta=0.02, confidence=0.9).lower_epsilon > 0.0
    assert wrong <= 20 + 4 * math.sqrt(18)


# Right runs.


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_right_run_shows_less_than_it_claims_but_not_nothing(setting, seed):
    found = audited(setting, seed)
    assert found.is_consistent
    assert 0.2 * found.certified.upper < found.lower_epsilon <= found.certified.upper
    assert found.num_correct <= found.num_guesses <= found.num_canaries == 20_000
    assert found.plan.num_examples == 50  # public, whatever the coins
    assert found.steps == 20


@pytest.mark.parametrize("setting", SETTINGS)
def test_one_run_without_assumptions_stays_below_the_claim_too(setting):
    found = audited(setting, method="one-run", audit_delta=1e-8, num_canaries=5000)
    assert found.delta == 1e-8
    assert 0.0 < found.lower_epsilon <= found.certified.upper


def test_repeated_runs_of_one_canary_each_show_epsilon_as_well():
    setting = Setting(1.0, 1.0, 0.3, 1.0)
    found = audited(setting, method="repeated-runs", num_canaries=150, steps=1)
    assert found.num_canaries == 150
    assert 0.0 < found.lower_epsilon <= found.certified.upper


# Planted faults.


def half_the_noise(monkeypatch):
    def weaker(own, tensors, noise):
        add_noise_(tensors, dataclasses.replace(noise, scale=noise.scale / 2.0), generator=own.noise)

    monkeypatch.setattr(Randomness, "add_noise_", weaker)


def twice_the_clip(monkeypatch):
    right = training_private.Clipping
    monkeypatch.setattr(training_private, "Clipping", lambda clip, *more: right(2.0 * clip, *more))


def twice_the_rate(monkeypatch):
    right = batch_draws.poisson_positions
    monkeypatch.setattr(batch_draws, "poisson_positions", lambda n, rate, source: right(n, 2 * rate, source))


def each_batch_twice(monkeypatch):
    right, drawn = batch_draws.poisson_positions, []

    def again(*arguments):
        drawn.append(drawn[-1] if len(drawn) % 2 else right(*arguments))
        return drawn[-1]

    monkeypatch.setattr(batch_draws, "poisson_positions", again)


FAULTS = [half_the_noise, twice_the_clip, twice_the_rate, each_batch_twice]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_an_audit_refutes_the_claim_of_a_run_with_a_fault(setting, fault, monkeypatch):
    fault(monkeypatch)
    found = audited(setting)
    assert not found.is_consistent
    assert found.lower_epsilon > found.certified.upper


def test_one_run_refutes_half_the_noise_without_assumptions(monkeypatch):
    half_the_noise(monkeypatch)
    setting = Setting(1.0, 1.0, 0.5, 1.0)
    assert not audited(setting, method="one-run", audit_delta=1e-7, num_canaries=5000, steps=1).is_consistent


# The law of the noise, for every beta.


def checked(beta, seed=1, **more):
    _, _, loader, generator = parts(seed)
    model = nn.Sequential(nn.Linear(3, 60), nn.Tanh(), nn.Linear(60, 10), nn.Tanh(), nn.Linear(10, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    asked = {"norm": 2.0, "noise_multiplier": 1.0, "rate": 0.2, "steps": 100, "delta": 1e-5, **more}
    return check_noise(model, optimizer, loader, beta=beta, clip_norm=1.0, generator=generator, **asked)


@pytest.mark.parametrize("beta", [1.0, 1.5, 2.0, 3.0, 8.0])
def test_the_steps_of_a_right_run_pass(beta):
    found = checked(beta, level=0.01)  # a level at which a biased test would soon be seen to fail
    assert found.passed, found.failures
    assert found.steps == 20
    assert found.num_values > 30_000


def test_at_its_level_a_right_run_fails_no_more_often_than_stated():
    failed = sum(
        not checked(2.0, seed, level=0.2, first_steps=4, num_canaries=100).passed for seed in range(20)
    )
    assert failed <= 4 + 4 * math.sqrt(20 * 0.2 * 0.8)


def altered_noise(monkeypatch, change):
    def other(own, tensors, noise):
        change(tensors, noise, own.noise)

    monkeypatch.setattr(Randomness, "add_noise_", other)


def scale_halved(monkeypatch):
    half_the_noise(monkeypatch)


def scale_four_percent_short(monkeypatch):
    def short(tensors, noise, generator):
        return add_noise_(tensors, dataclasses.replace(noise, scale=0.96 * noise.scale), generator=generator)

    altered_noise(monkeypatch, short)


def another_beta_of_equal_variance(monkeypatch):
    def other(tensors, noise, generator):
        beta = 2.0 if noise.beta != 2.0 else 1.5
        return add_noise_(tensors, GeneralizedGaussian.from_std(beta, noise.std), generator=generator)

    altered_noise(monkeypatch, other)


def the_noise_of_the_first_step_again(monkeypatch):
    kept = {}

    def again(tensors, noise, generator):
        shapes = tuple(one.shape for one in tensors)
        if shapes not in kept:
            kept[shapes] = add_noise_([torch.zeros_like(one) for one in tensors], noise, generator=generator)
        return torch._foreach_add_(list(tensors), list(kept[shapes]))

    altered_noise(monkeypatch, again)


def one_bias_without_noise(monkeypatch):
    def most(tensors, noise, generator):
        return add_noise_([one for one in tensors if one.shape != (10,)], noise, generator=generator)

    altered_noise(monkeypatch, most)


def the_tail_cut_off(monkeypatch):
    def cut(tensors, noise, generator):
        added = add_noise_([torch.zeros_like(one) for one in tensors], noise, generator=generator)
        most = float(noise.isf(1e-3))
        return torch._foreach_add_(list(tensors), [one.clamp(-most, most) for one in added])

    altered_noise(monkeypatch, cut)


NOISE_FAULTS = {
    scale_halved: "law of the noise",
    scale_four_percent_short: "scale of the noise",
    another_beta_of_equal_variance: "law of the noise",
    the_noise_of_the_first_step_again: "the same noise in two steps",
    one_bias_without_noise: "law for one parameter",
    the_tail_cut_off: "tails",
    twice_the_clip: "clipped canaries",
    twice_the_rate: "sampling rate",
    each_batch_twice: "batches drawn anew",
}


@pytest.mark.parametrize("beta", [1.5, 4.0])
@pytest.mark.parametrize("fault", NOISE_FAULTS)
def test_a_check_of_the_steps_names_the_fault(fault, beta, monkeypatch):
    fault(monkeypatch)
    found = checked(beta)
    failed = [test.name for test in found.failures]
    assert NOISE_FAULTS[fault] in failed
    assert ("clipped examples" in failed) == (fault is twice_the_clip)


# The user's own run.


def test_a_loop_of_ones_own_over_a_dataset_of_ones_own_can_be_audited():
    class Pairs(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            return {"x": torch.full((3,), float(index)), "y": index % 2}

    seen = []

    def train(private):
        scheduler = torch.optim.lr_scheduler.StepLR(private.optimizer, 1)
        for _ in range(2):
            for batch in private.data_loader:
                assert set(batch) == {"x", "y"}
                private.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(private.model(batch["x"]), batch["y"])
                loss.backward()
                private.optimizer.step()
                seen.append(loss.item())
            scheduler.step()

    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    before = [tensor.clone() for tensor in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters())
    found = audit(
        model, optimizer, DataLoader(Pairs(), batch_size=20), beta=1.0, clip_norm=0.5,
        norm=1.0, noise_multiplier=0.2,
        steps=4, delta=1e-5, num_canaries=400, train=train, physical_batch_size=64,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert found.steps == 4 < len(seen)  # parts of a batch are not steps
    assert 0.0 < found.lower_epsilon <= found.certified.upper
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert len(optimizer.param_groups) == 1


def test_the_ready_loop_and_a_budget_can_be_audited():
    model, optimizer, loader, generator = parts(1)
    found = audit(
        model, optimizer, loader, beta=2.0, clip_norm=1.0,
        target_epsilon=2.0, delta=1e-5, epochs=2, num_canaries=200,
        train=lambda private: fit(private, progress=False), generator=generator,
    )  # fmt: skip
    assert found.certified.upper <= 2.0
    assert found.is_consistent


def test_a_seed_repeats_an_audit_and_without_one_it_differs():
    once, again = (audited(SETTINGS[0], num_canaries=500).scores for _ in range(2))
    assert np.array_equal(once, again)
    model, optimizer, loader, _ = parts(1)
    free = [
        audit(
            model,
            optimizer,
            loader,
            beta=1.0,
            clip_norm=1.0,
            noise_multiplier=1.0,
            steps=1,
            delta=1e-5,
            num_canaries=50,
        )
        for _ in range(2)
    ]
    assert not np.array_equal(free[0].scores, free[1].scores)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (
            {"method": "guess"},
            "method must be one of one-run, independent-canaries, repeated-runs, got 'guess'",
        ),
        ({"num_canaries": 5}, r"num_canaries must be a whole number in \[20, 10000000\], got 5"),
        ({"confidence": 1.0}, r"confidence must be a number in \[0.5, 1\), got 1.0"),
        ({"audit_delta": 0.0}, r"audit_delta must be a number in \(0, 0.5\], got 0.0"),
        ({"train": lambda private: None}, "train must take at least one step .* it took none"),
    ],
)
def test_what_cannot_be_audited_is_refused_with_a_way_out(wrong, told):
    with pytest.raises(ValueError, match=told):
        audited(SETTINGS[0], **wrong)


def test_a_model_that_returns_its_loss_is_refused():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            return self.layer(x).sum()

    model = Loss()
    loader = parts(1)[2]

    def train(private):
        for x, _ in private.data_loader:
            private.model(x).backward()
            private.optimizer.step()

    with pytest.raises(ValueError, match=r"a row for each of the \d+ examples .* got one of shape \(\)"):
        audit(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loader, beta=2.0, clip_norm=1.0,
            noise_multiplier=1.0,
            steps=1, rate=0.9, delta=1e-5, train=train,
        )  # fmt: skip
