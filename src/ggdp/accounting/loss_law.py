# SPDX-License-Identifier: Apache-2.0
"""The law of the privacy loss of one release: distribution functions, densities, and draws from it."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ggdp import arguments
from ggdp.accounting.loss_histogram import LossSampler
from ggdp.accounting.steps import steps_of
from ggdp.mechanisms import AdditiveNoise, Adjacency, PoissonSampled
from ggdp.numerics import Array
from ggdp.privacy_loss.hockey_stick import log_masses, thresholds
from ggdp.privacy_loss.shift_pair import ShiftPair

_DIRECTIONS = (Adjacency.REMOVE, Adjacency.ADD, Adjacency.REPLACE)


def _pair_of(mechanism: AdditiveNoise | PoissonSampled, direction: Adjacency) -> ShiftPair:
    arguments.one_of("direction", direction, _DIRECTIONS)
    inner = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
    arguments.instance("mechanism", inner, AdditiveNoise)
    parts = steps_of(mechanism, direction).pairs()[0]
    if len(parts) != 1 or parts[0][1] != 1:
        raise ValueError(f"mechanism must be one release of a number, got {mechanism!r}")
    return parts[0][0]


@dataclass(frozen=True)
class PrivacyLoss:
    """The laws of the privacy loss of one release of a number: distribution functions and densities.

    The loss is log P/Q, where P is the law of the output with the record in question and Q the law without it
    (direction REMOVE; ADD exchanges the two, REPLACE has another record in Q). Y is the loss of an output
    drawn from P, X that of one drawn from Q: the privacy loss random variables of PRV accountants. Values are
    floats, right to about twelve digits, and not certified.

    Attributes:
        mechanism: noise on a number, Poisson-sampled or not.
        direction: REMOVE, ADD or REPLACE.

    >>> from ggdp import AdditiveNoise, Gaussian
    >>> loss = PrivacyLoss(AdditiveNoise(Gaussian(std=1.0)))
    >>> round(float(loss.y_cdf(0.5)), 12), round(float(loss.x_cdf(-0.5)), 12)
    (0.5, 0.5)
    """

    mechanism: AdditiveNoise | PoissonSampled
    direction: Adjacency = Adjacency.REMOVE
    _pair: ShiftPair = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_pair", _pair_of(self.mechanism, self.direction))

    def y_sf(self, t: ArrayLike) -> Array:
        """P(Y > t)."""
        return self._beyond(t)[0]

    def x_sf(self, t: ArrayLike) -> Array:
        """P(X > t)."""
        return self._beyond(t)[1]

    def y_cdf(self, t: ArrayLike) -> Array:
        """P(Y <= t)."""
        return 1.0 - self.y_sf(t)

    def x_cdf(self, t: ArrayLike) -> Array:
        """P(X <= t)."""
        return 1.0 - self.x_sf(t)

    def y_pdf(self, t: ArrayLike) -> Array:
        """The density of Y at t. Laplace noise has atoms besides, at the smallest and at the largest loss."""
        return np.exp(np.asarray(t, dtype=np.float64)) * self.x_pdf(t)

    def x_pdf(self, t: ArrayLike) -> Array:
        """The density of X at t, which is e^-t times that of Y."""
        t, pair = np.asarray(t, dtype=np.float64), self._pair
        z, _ = thresholds(pair, np.atleast_1d(t))
        inside = np.isfinite(z)
        safe = np.where(inside, z, 0.0)
        log_density = -(np.abs(safe) ** pair.beta) - pair.log_normalizer + pair.log_mixture(safe, pair.down)
        slope = pair.loss_slope(safe)
        with np.errstate(divide="ignore"):
            density = np.where(inside & (slope > 0.0), np.exp(log_density) / slope, 0.0)
        return np.asarray(density.reshape(t.shape))

    def _beyond(self, t: ArrayLike) -> tuple[Array, Array]:
        t = np.asarray(t, dtype=np.float64)
        z, _ = thresholds(self._pair, np.atleast_1d(t))
        log_p, log_q, _ = log_masses(self._pair, np.where(np.isfinite(z), z, 0.0))
        ends = np.where(z == np.inf, 0.0, 1.0)
        p, q = (np.where(np.isfinite(z), np.exp(mass), ends).reshape(t.shape) for mass in (log_p, log_q))
        return np.asarray(p), np.asarray(q)


def loss_sampler(
    mechanism: AdditiveNoise | PoissonSampled, direction: Adjacency = Adjacency.REMOVE
) -> LossSampler:
    """A function that draws privacy losses of one release, as `monte_carlo_epsilon` takes it.

    Raises:
        ValueError: `direction` is not one direction, or the mechanism is not one scalar release.
    """
    pair = _pair_of(mechanism, direction)
    inner = mechanism.mechanism if isinstance(mechanism, PoissonSampled) else mechanism
    assert isinstance(inner, AdditiveNoise)
    noise, scale = inner.noise, inner.noise.scale

    def sample(count: int, rng: np.random.Generator) -> Array:
        z = np.asarray(noise.sample((count,), rng=rng), dtype=np.float64) / scale
        if pair.up:
            z += pair.up if pair.rate == 1.0 else pair.up * (rng.random(count) < pair.rate)
        return pair.loss(z)

    return sample
