# SPDX-License-Identifier: Apache-2.0
"""The paper's algorithms under the paper's names, as thin functions over the library.

| paper | here | in the library |
|---|---|---|
| Proposition 1, the losses X and Y | | `ggdp.PrivacyLoss`; `ggdp.loss_sampler` draws them |
| Algorithm 1, GG | `gg` | `ggdp.release(AdditiveNoise(...), value)` |
| Algorithm 2, GGNMax | `ggnmax` | `ggdp.noisy_argmax` |
| Algorithm 3, beta-DP-SGD | | `ggdp.torch.make_private` |
| Algorithm 4, SGG | `sgg` | `ggdp.release(PoissonSampled(...), records, query)` |
| Algorithm 5, sample | `sample` | `ggdp.monte_carlo_epsilon` has a histogram of its own |
| Algorithm 6, SampledComposePRV | `sampled_compose` | `ggdp.monte_carlo_epsilon`, one loss many times |
| Theorem 6, eta and tau as printed | `printed_error` | `ggdp.MonteCarloEstimate.eta` and `.tau`, repaired |
| Algorithm 7, the sigma solver | `sigma_solver` | `ggdp.calibrate_scale(..., tolerance=)` |

In `gg`, `ggnmax` and `sgg` sigma is a noise multiplier, as in the paper's figures and its code: the scale of
the noise is sqrt(2) sigma times the sensitivity. (Definition 8 has another sigma, with which Algorithm 1 does
not scale with the sensitivity.) No number that `sample` and `sampled_compose` give is a guarantee; for one,
ask `ggdp.epsilon`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ggdp import (
    AdditiveNoise,
    Estimate,
    GeneralizedGaussian,
    PoissonSampled,
    arguments,
    noisy_argmax,
    release,
)
from ggdp import epsilon as epsilon_of
from ggdp.accounting.loss_histogram import LossSampler, draw
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.numerics import Array
from ggdp.search import arithmetic, halve

_MOST_POINTS = 1 << 24
_MOST_ROUNDS = 100  # of drawing, until enough losses lie in [-L, L]
_CAVEAT = "made of sampled losses; the error bound of the paper's Theorem 6 says nothing at usual sizes"


Query = Callable[[Any], Any]
"""From the records to an exact answer: a number, or an array of numbers."""


def gg(
    beta: float, sigma: float, f: Query, database: Any, *, sensitivity: float = 1.0, rng: Rng | None = None
) -> Any:
    """Algorithm 1, the Generalized Gaussian mechanism: f of the database plus noise on every number of it.

    One record must move f by at most `sensitivity` in the l_beta norm. Without `rng` nobody can predict the
    noise.

    >>> rng = np.random.default_rng(1)  # of an example; leave it out for real releases
    >>> bool(abs(gg(1.5, 2.0, sum, [1.0, 0.0, 1.0], rng=rng) - 2.0) < 20.0)
    True
    """
    noise = GeneralizedGaussian.from_noise_multiplier(beta, sigma, sensitivity=sensitivity)
    value = f(database)
    mechanism = AdditiveNoise(noise, sensitivity=sensitivity, dimension=max(np.size(value), 1))
    return release(mechanism, value, rng=rng)


def ggnmax(
    beta: float, sigma: float, functions: Sequence[Query], database: Any, *, rng: Rng | None = None
) -> int:
    """Algorithm 2: which of the counts f_1(database), ..., f_N(database) is the largest after noise, from 0.

    >>> ballots, classes = [0, 1, 1, 1, 2] * 40, range(3)
    >>> counts = [lambda ballots, c=c: sum(ballot == c for ballot in ballots) for c in classes]
    >>> ggnmax(2.0, 1.0, counts, ballots, rng=np.random.default_rng(1))
    1
    """
    if not functions:
        raise ValueError("functions must hold at least one function, got none")
    noise = GeneralizedGaussian.from_noise_multiplier(beta, sigma)
    return int(noisy_argmax([f(database) for f in functions], noise, rng=rng))


def sgg(
    beta: float,
    sigma: float,
    q: float,
    f: Query,
    database: Any,
    *,
    sensitivity: float = 1.0,
    dimension: int = 1,
    rng: Rng | None = None,
) -> Any:
    """Algorithm 4, SGG: keep each record with probability q, then release f of those that were kept.

    f must also answer for no record at all, by `dimension` numbers.

    >>> bool(abs(sgg(2.0, 1.0, 0.5, len, list(range(1000)), rng=np.random.default_rng(1)) - 500.0) < 100.0)
    True
    """
    noise = GeneralizedGaussian.from_noise_multiplier(beta, sigma, sensitivity=sensitivity)
    mechanism = AdditiveNoise(noise, sensitivity=sensitivity, dimension=dimension)
    return release(PoissonSampled(mechanism, rate=q), database, f, rng=rng)


@dataclass(frozen=True)
class SampledLoss:
    """A law on the points i h + shift, i = -m ... m.

    Attributes:
        h: the spacing.
        shift: of all points, so that the mean is that of the sampled losses.
        masses: of the 2 m + 1 points, lowest first; their sum is one.
        error: eta and tau of Theorem 6 as printed, where s and t were given.
    """

    h: float
    shift: float
    masses: Array
    error: tuple[float, float] | None = None

    @property
    def points(self) -> Array:
        """The losses."""
        m = len(self.masses) // 2
        return np.asarray(np.arange(-m, m + 1) * self.h + self.shift, dtype=np.float64)

    def delta(self, epsilon: float) -> Estimate:
        """E[(1 - e^(epsilon - loss))_+]."""
        return Estimate(
            self._delta(arguments.real("epsilon", epsilon, least=0.0)), "SampledComposePRV", _CAVEAT
        )

    def epsilon(self, delta: float) -> Estimate:
        """The smallest epsilon at which `delta` is at most this delta."""
        delta = arguments.real("delta", delta, above=0.0, below=1.0)
        top = max(float(self.points[-1]), 0.0)
        if self._delta(0.0) <= delta:
            return Estimate(0.0, "SampledComposePRV", _CAVEAT)
        found, _ = halve(lambda value: self._delta(value) <= delta, top, 0.0, middle=arithmetic, halvings=60)
        return Estimate(found, "SampledComposePRV", _CAVEAT)

    def _delta(self, epsilon: float) -> float:
        return float(np.sum(self.masses * -np.expm1(np.minimum(epsilon - self.points, 0.0))))


def sample(loss: LossSampler, n: int, L: float, h: float, *, rng: np.random.Generator) -> SampledLoss:
    """Algorithm 5: a law on a grid of spacing h over [-L, L], from 2 n losses that lie there.

    As printed it cannot be run. Repaired: masses are normalised over the bins, not over 1 ... 2 n; the mean
    is that of the second n losses, not of n + 1; m is L / h, a whole number; the shift is clipped to
    [-h/2, h/2], not to [0, h/2].

    Losses outside [-L, L] are drawn again, as printed. That forgets the losses that cost most, so that the
    law understates the cost unless hardly any loss lies outside.

    Args:
        loss: (count, rng) -> losses, such as `ggdp.loss_sampler` gives.
        n: half the number of losses.
        L: a multiple of h.
        h: the width of a bin.
        rng: a NumPy generator.
    """
    n, m = arguments.whole("n", n, least=1), _half_count(L, h)
    kept: list[Array] = []
    missing = 2 * n
    for _ in range(_MOST_ROUNDS):
        losses = draw(loss, missing, rng)
        kept.append(losses[np.abs(losses) <= L])
        missing -= len(kept[-1])
        if not missing:
            break
    else:
        raise ValueError(f"L must be so large that most losses lie in [-L, L], got {L:g}")
    first, second = np.split(np.concatenate(kept), 2)
    places = np.clip(np.rint(first / h).astype(np.int64), -m, m)
    masses = np.bincount(places + m, minlength=2 * m + 1) / n
    mean = float(np.sum(masses * np.arange(-m, m + 1))) * h
    shift = min(max(float(np.mean(second)) - mean, -0.5 * h), 0.5 * h)
    return SampledLoss(h, shift, masses)


def sampled_compose(
    losses: Sequence[LossSampler | tuple[LossSampler, int]],
    n: int,
    L: float,
    h: float,
    *,
    s: float | None = None,
    t: float | None = None,
    rng: np.random.Generator,
) -> SampledLoss:
    """Algorithm 6, SampledComposePRV: the sum of k independent losses, each from its own sample.

    Args:
        losses: samplers, or pairs (sampler, times) for a loss that occurs several times and is sampled once.
        n: half the number of losses drawn from each sampler.
        L: half the width of the grid. Sums are taken modulo the grid, as printed, so it must hold the sum.
        h: the width of a bin; L must be a multiple of it.
        s: a parameter of Theorem 6, given together with t.
        t: likewise.
        rng: a NumPy generator.

    Returns:
        The composed law; its `delta` and `epsilon` are estimates, its `error` what Theorem 6 says of them.

    >>> from ggdp import Composed, Gaussian, Laplace, epsilon, loss_sampler
    >>> steps = [AdditiveNoise(Gaussian(std=3.0)), AdditiveNoise(Laplace(4.0))]
    >>> losses = [loss_sampler(step) for step in steps]
    >>> found = sampled_compose(losses, 100_000, 8.0, 1 / 128, rng=np.random.default_rng(1))
    >>> exact = epsilon(Composed([(step, 1) for step in steps]), delta=1e-2)
    >>> abs(found.epsilon(1e-2).value / exact.estimate - 1.0) < 0.03
    True
    """
    if not losses:
        raise ValueError("losses must hold at least one sampler, got none")
    if (s is None) is not (t is None):
        raise ValueError(f"s and t must be given together, or neither, got s={s!r} and t={t!r}")
    m, k = _half_count(L, h), 0
    transform: Array | Any = 1.0
    shift = 0.0
    for entry in losses:
        sampler, times = entry if isinstance(entry, tuple) else (entry, 1)
        times = arguments.whole("times", times, least=1)
        law = sample(sampler, n, L, h, rng=rng)
        transform = transform * np.fft.rfft(np.fft.ifftshift(law.masses)) ** times
        shift, k = shift + times * law.shift, k + times
    masses = np.fft.fftshift(np.fft.irfft(transform, 2 * m + 1))
    masses = np.maximum(masses, 0.0)
    error = None if s is None or t is None else printed_error(k=k, n=n, L=L, h=h, s=s, t=t)
    return SampledLoss(h, shift, masses / masses.sum(), error)


def printed_error(*, k: int, n: int, L: float, h: float, s: float, t: float) -> tuple[float, float]:
    """eta and tau of Theorem 6 as printed, with its unknown tail probabilities taken as zero.

    >>> eta, tau = printed_error(k=1000, n=15_000_000, L=10.0, h=1e-4, s=0.1, t=1e-3)
    >>> eta > 100.0
    True
    """
    s, t = arguments.real("s", s, above=0.0), arguments.real("t", t, above=0.0)
    root = math.sqrt(L / (n * h))
    eta = 4.0 * math.exp(-2.0 * s**2 / (k * h**2)) + 2.0 * k * (t + root)
    eta += 4.0 * k * math.exp(-n * t**2 / (2.0 * L**2)) + 8.0 * k * math.exp(-n * t**2 / 2.0)
    tau = s + k * (t + 2.0 * L * (0.5 * t + root)) + 2.0 * k * (0.5 * t + root)
    return eta, tau


def sigma_solver(beta: float, epsilon: float, delta: float, tolerance: float) -> float:
    """Algorithm 7, repaired: a sigma whose epsilon is at most `epsilon`, and below it by at most `tolerance`.

    As printed it does not end: its first loop halves sigma while epsilon is too large, its second doubles
    sigma while epsilon is too small, and its third tests a quantity that is never positive. Here the first
    loop halves sigma while epsilon is small enough, the second doubles it while epsilon is too large, and the
    third ends when epsilon is close. The accountant is the certified one, so that the answer is a guarantee
    for one release of sensitivity 1. `ggdp.calibrate_scale` is faster, and takes runs of many releases.

    Args:
        beta: exponent of the noise.
        epsilon: the target.
        delta: the target.
        tolerance: of epsilon; the paper's tau.

    Returns:
        sigma as a noise multiplier: the scale is sqrt(2) sigma.

    >>> from ggdp import calibrate_scale
    >>> exact = calibrate_scale(beta=1.5, epsilon=1.0, delta=1e-5).noise_multiplier
    >>> 0.0 <= sigma_solver(1.5, 1.0, 1e-5, 1e-6) / exact - 1.0 < 1e-6
    True
    """
    target = arguments.real("epsilon", epsilon, above=0.0)
    tolerance = arguments.real("tolerance", tolerance, least=1e-9 * target)

    def spent(sigma: float) -> float:
        noise = GeneralizedGaussian.from_noise_multiplier(beta, sigma)
        return epsilon_of(AdditiveNoise(noise), delta=delta).upper

    low = high = 1.0
    while spent(low) <= target:
        low /= 2.0
    while spent(high) > target:
        high *= 2.0
    while target - spent(high) > tolerance:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(middle) > target else (low, middle)
    return high


def _half_count(L: float, h: float) -> int:
    """m = L / h: bins on either side of the middle one. (The printed (L - h/2) / h is no whole number.)"""
    h = arguments.real("h", h, above=0.0)
    L = arguments.real("L", L, least=h, most=0.5 * _MOST_POINTS * h)
    return max(round(L / h), 1)
