# SPDX-License-Identifier: Apache-2.0
"""Draw matched_norm.png: the largest norm in which one coordinate is the worst, scanned and verified.

For a shift (a, b) and an epsilon let c be the length of the one-coordinate shift with the same delta, and p
the norm in which (a, b) is as long as c. The smallest p over all shifts and epsilons is the largest norm in
which no scanned shift of two coordinates exceeds one: an upper bound. From below, the largest of a few norms
that `verify_matched_norm` certifies.

Run from the root of the repository: python docs/figures/matched_norm.py
"""

import math
from pathlib import Path

import numpy as np

from ggdp.mechanisms.additive_noise import matched_exponent
from ggdp.privacy_loss.hockey_stick import hockey_stick
from ggdp.privacy_loss.matched_norm import verify_matched_norm
from ggdp.privacy_loss.shift_pair import ShiftPair
from ggdp.reporting.canvas import COLOURS, panels, png

BETAS = (1.05, 1.1, 1.25, 1.4, 1.5, 1.6, 1.75, 1.9, 1.95)
LENGTHS = (0.2, 0.7, 2.0)
SHARES = (0.5, 0.2, 0.05)
DELTAS = np.geomspace(0.1, 1e-12, 8)
DIVISORS = (6.0, 6.5, 7.0, 7.25, 7.5, 7.75)  # of (beta - 1)(2 - beta), to be taken off beta
SLOW = 1.8  # from here on only the first is tried


def one(beta: float, shift: float, epsilon: float) -> float:
    """delta of one coordinate."""
    return float(hockey_stick(ShiftPair(beta, shift, 0.0, 1.0), np.array([epsilon])).value[0])


def two(beta: float, a: float, b: float, epsilon: float) -> float:
    """delta of two: the closed form of one coordinate, averaged over the noise of the other."""
    pair = ShiftPair(beta, a, 0.0, 1.0)
    reach = 70.0 ** (1.0 / beta)
    edges = np.unique(
        np.concatenate([np.linspace(-reach, 0.0, 16), np.linspace(0.0, a, 6), np.linspace(a, a + reach, 30)])
    )
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(edges)[:, None]
    z = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    density = np.exp(-(np.abs(z - a) ** beta) - pair.log_normalizer)
    inner = hockey_stick(ShiftPair(beta, b, 0.0, 1.0), epsilon - pair.loss(z)).value
    return float((half * weights).ravel() @ (density * inner))


def solve(rising, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    """A root of a rising function, by halving."""
    for _ in range(34):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return 0.5 * (low + high)


def largest_norm(beta: float) -> float:
    """The smallest p over the scan."""
    smallest = math.inf
    for length in LENGTHS:
        for share in SHARES:
            a, b = length * share ** (1.0 / beta), length * (1.0 - share) ** (1.0 / beta)
            for wanted in DELTAS:
                epsilon = solve(lambda e: wanted - one(beta, length, e), 0.0, 40.0)  # noqa: B023
                reached = two(beta, a, b, epsilon)
                if epsilon < 1e-6 or reached <= wanted:
                    continue  # here one coordinate of l_beta length is enough
                c = solve(lambda v: one(beta, v, epsilon) - reached, length, 2.0 * length)  # noqa: B023
                smallest = min(smallest, solve(lambda p: c - (a**p + b**p) ** (1.0 / p), 1.0, beta))  # noqa: B023
    return min(smallest, beta)


def verified_norm(beta: float) -> float:
    """The largest of a few norms that is certified."""
    best = math.nan
    for divisor in DIVISORS if beta < SLOW else DIVISORS[:1]:
        norm = beta - (beta - 1.0) * (2.0 - beta) / divisor
        if not verify_matched_norm(beta, norm=norm).certified:
            break
        best = norm
    return best


def main() -> None:
    """Scan, verify, print and draw."""
    found, proved = [largest_norm(beta) for beta in BETAS], [verified_norm(beta) for beta in BETAS]
    for beta, p, q in zip(BETAS, found, proved, strict=True):
        print(f"beta {beta:g}: scanned {p:.4f}, verified {q:.4f}, matched {matched_exponent(beta):.4f}")
    figure, (axes,) = panels(1)
    line = np.linspace(1.0, 2.0, 101)
    axes.plot(
        line,
        (line - 1.0) * (2.0 - line) / 6.0,
        color=COLOURS[0],
        label="the matched norm, (beta - 1)(2 - beta) / 6",
    )
    axes.plot(
        BETAS, np.array(BETAS) - proved, "s", color=COLOURS[2], label="beta minus the largest p verified"
    )
    axes.plot(BETAS, np.array(BETAS) - found, "o", color=COLOURS[1], label="beta minus the largest p scanned")
    axes.set(xlabel="beta", ylabel="how far below beta the norm must be", ylim=(0.0, None))
    axes.legend(frameon=False)
    Path(__file__).with_suffix(".png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
