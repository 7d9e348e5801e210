# SPDX-License-Identifier: Apache-2.0
"""Moment generating functions of one release's loss, by quadrature with a proved error.

    phi(s) = E_P[e^{s L}] = integral over z of  e^{F(z)},
    F(z) = -|z|^beta - log_normalizer + (1 + s) log r_up(z) - s log r_down(z),

with r_v = 1 - rate + rate N(v)/N(0). The line is cut at the kinks and into panels, each with n Gauss-Legendre
nodes; panels are split until the error proved for each (`privacy_loss.panel_error`) is negligible.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np

from ggdp.clock import CLOCK
from ggdp.errors import CannotCertifyError
from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.panel_error import NODES_PER_PANEL, Tilts, log_panel_error, log_tilted
from ggdp.privacy_loss.shift_pair import ShiftPair

MOST_PANELS = 2000
_MOST_ROUNDS = 60
_MANY, _FEW = 200, 16  # number of releases from which on a few are tried first, and how many these are
_CLOSE = 0.125  # largest difference of exponents whose panels are reused, if there are many releases
_WIDEST = 1.5  # width of the panels that are tried first, if beta is whole
NEGLIGIBLE = -41.0
"""log of the error allowed per panel, relative to phi(theta), where nothing else is asked for."""

_STRIDES = np.concatenate([[0.0], np.geomspace(0.25, 1e9, 48)])


@dataclass(frozen=True)
class Nodes:
    """Quadrature nodes: phi(s) is about the sum of exp(log_mass + s loss), with bounds on the error.

    Attributes:
        loss: the loss at each node.
        log_mass: log of quadrature weight times density of P.
        share: each node's share of phi at the first tilt.
        mean: mean of the loss under the first tilted law.
        deviation: its standard deviation.
        log_phi: log phi(theta) for each tilt the nodes were made for.
        quadrature: for each tilt, a bound on |sum - phi(s)| / phi(theta) for Re s = theta, |Im s| <= omega.
        roundoff: the same for floating-point evaluation.
        loss_error: bound on the mean error of the losses under the first tilted law.
        anchors: ends and kinks of the line.
        edges: of the panels.
    """

    loss: Array
    log_mass: Array
    share: Array
    mean: float
    deviation: float
    log_phi: tuple[float, ...]
    quadrature: tuple[float, ...]
    roundoff: tuple[float, ...]
    loss_error: float
    anchors: Array
    edges: Array


@lru_cache(maxsize=4)
def _gauss_legendre(count: int) -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(count)


def tail_ends(
    pair: ShiftPair, theta: float, log_phi: float, depth: float = 44.0
) -> tuple[float, float, float]:
    """An interval outside of which phi(theta) has at most the share e^-depth, and a bound on that share.

    Right of z, with share_down <= its value at z, F'(x) <= beta x^(beta-1) * bracket(z) for every x >= z,
    where bracket = -1 + (1+theta)(1 - (1-up/z)^(beta-1)) + theta share_down (( 1+|down|/z)^(beta-1) - 1)
    decreases in z; so once it is negative the tail is at most e^{F(z)} / |beta z^(beta-1) bracket|. Left of
    -u both mixtures only push F down.
    """
    power = pair.beta - 1.0

    def right(z: Array) -> Array:
        share = pair.share(z, pair.down) if pair.down else np.zeros_like(z)
        with np.errstate(invalid="ignore", divide="ignore"):  # a cut may be left of the shift
            growth = (1.0 + theta) * -np.expm1(power * np.log1p(-pair.up / z))
            growth = growth + theta * share * np.expm1(power * np.log1p(-pair.down / z))
            bound = log_tilted(pair, z, theta) - np.log((1.0 - growth) * pair.beta * z**power)
        return np.where(growth < 1.0, bound, np.inf)

    def left(u: Array) -> Array:
        return np.asarray(log_tilted(pair, -u, theta) - np.log(pair.beta * u**power))

    enough = log_phi - depth
    low, log_low = _first_below(left, 1e-3 - pair.down, enough)
    share = math.exp(min(log_low - log_phi, 0.0))
    if -low < pair.floor:  # the law begins here
        low, share = -pair.floor, 0.0
    if pair.cut <= pair.up or (math.isfinite(pair.cut) and float(right(np.array(pair.cut))) > enough):
        return -low, pair.cut, share  # the law ends here, and nothing lies beyond
    high, log_high = _first_below(right, max(1.001 * pair.up + 1e-3, pair.floor + 1e-3), enough)
    return -low, min(high, pair.cut), share + math.exp(min(log_high - log_phi, 0.0))


def _first_below(bound: Callable[[Array], Array], start: float, enough: float) -> tuple[float, float]:
    """A point, not much beyond the first, where a bound that falls towards infinity has reached `enough`.

    Also the bound there.
    """
    points = start + _STRIDES
    for _ in range(2):  # the end need not be exact; it should only not be much too far
        values = bound(points)
        below = np.nonzero(values <= enough)[0]
        if not len(below):
            raise CannotCertifyError("the tail of the tilted noise does not fall off")
        first = int(below[0])
        best = float(points[first]), float(values[first])
        if first == 0:
            break
        points = np.linspace(points[first - 1], points[first], 9)[1:]
    return best


def first_edges(pair: ShiftPair, low: float, high: float, smallest: float, ratio: float) -> Array:
    """Panel edges on [low, high]: the kinks, graded towards them to `smallest` when beta is not whole."""
    anchors = [low, *(kink for kink in pair.kinks if low < kink < high), high]
    pieces = [np.asarray(anchors)]
    for left, right in pairwise(anchors):
        ends = [(left, 1.0, right - left)] if left != low else []
        ends += [(right, -1.0, right - left)] if right != high else []
        for kink, side, length in ends:
            reach = length if len(ends) == 1 else 0.5 * length
            if pair.beta == int(pair.beta):
                pieces.append(kink + side * reach * np.linspace(0.0, 1.0, 2 + math.ceil(reach / _WIDEST))[1:])
            else:
                count = max(2, math.ceil(math.log(max(reach / smallest, ratio)) / math.log(ratio)))
                pieces.append(kink + side * reach * ratio ** -np.arange(count, dtype=float))
    return np.unique(np.concatenate(pieces))


def certified_nodes(
    pair: ShiftPair,
    tilts: Tilts,
    omega: float,
    log_phis: Tilts,
    *,
    floor: float = -math.inf,
    cut: float = math.inf,
    most_panels: int = MOST_PANELS,
    like: Nodes | None = None,
    negligible: float = NEGLIGIBLE,
) -> Nodes:
    """Nodes whose sum is phi(s) up to a proved error, for Re s each of the tilts.

    Args:
        pair: the release.
        tilts: real parts > -1 that will be asked for.
        omega: largest imaginary part that will be asked for at the first tilt; the others are asked for on
            the real axis.
        log_phis: a rough log phi at each tilt, by which errors are scaled.
        floor: leave out the noise before this point; the sums are then those of the rest.
        cut: leave out the noise beyond this point, likewise.
        most_panels: give up rather than use more.
        like: nodes of a similar release, whose panels, moved to this one's kinks, are tried first.
        negligible: log of the error allowed per panel, relative to phi(theta).

    Raises:
        CannotCertifyError: too many panels would be needed.
    """
    ends = [tail_ends(pair, theta, log_phi) for theta, log_phi in zip(tilts, log_phis, strict=True)]
    low, high = max(min(end[0] for end in ends), floor), min(max(end[1] for end in ends), cut)
    if pair.beta == int(pair.beta) and high - low > _WIDEST * most_panels:  # they alone would fill a memory
        raise CannotCertifyError("the tilted noise reaches too far for quadrature")
    anchors = np.array([low, *(kink for kink in pair.kinks if low < kink < high), high])
    log_phis = tuple(
        max(log_phi, _log_last(pair, low, high, theta))
        for theta, log_phi in zip(tilts, log_phis, strict=True)
    )
    if like is not None and len(like.anchors) == len(anchors) and len(like.edges) <= most_panels:
        edges = np.unique(np.append(np.interp(like.edges, like.anchors, anchors), anchors))
    else:
        edges = first_edges(pair, low, high, smallest=math.exp(0.5 * negligible), ratio=6.0)
    left, right, errors = _refined(
        pair, edges[:-1], edges[1:], tilts, omega, log_phis, most_panels, negligible
    )
    nodes = _nodes_on(pair, left, right, tilts, anchors)
    # errors are relative to the rough log phi so far, which may be too large
    shares = tuple(
        (error + end[2]) * math.exp(min(max(rough - log_phi, 0.0), 700.0))
        for error, end, rough, log_phi in zip(errors, ends, log_phis, nodes.log_phi, strict=True)
    )
    return replace(nodes, quadrature=shares)


def _log_last(pair: ShiftPair, low: float, high: float, theta: float) -> float:
    """About the log of the integral next to the end of the line, where a strong tilt puts all mass of a law
    that is cut, too close to the cut for a plan.
    """
    ends = high - (high - low) * np.array([0.0, 1e-6])
    last, before = log_tilted(pair, ends, theta).tolist()
    rise = (last - before) / (ends[0] - ends[1])
    return float(last - math.log(max(rise, 1.0 / (high - low)))) if high > low else -math.inf


def certified_nodes_of_all(
    pairs: Sequence[ShiftPair],
    tilts: Tilts,
    omega: float,
    log_phis: Array,
    *,
    most_panels: int = MOST_PANELS,
    most_in_all: int = 10**9,
    negligible: float = NEGLIGIBLE,
) -> list[Nodes]:
    """`certified_nodes` of many releases. Similar ones follow each other, and begin with the same panels.

    Raises:
        CannotCertifyError: one needs more than `most_panels`, or all more than `most_in_all`.
    """
    found: dict[int, Nodes] = {}
    like, fresh, group, left = None, 0, 0, most_in_all
    groups = _groups(np.array([pair.beta for pair in pairs]))
    alike = sorted(
        range(len(pairs)),
        key=lambda i: (groups[i], pairs[i].up - pairs[i].down, pairs[i].beta, pairs[i].rate),
    )
    if len(pairs) > _MANY:  # a few of them show whether there is room for the panels of all
        few = alike[:: len(pairs) // _FEW]
        some = [pairs[index] for index in few]
        sample = certified_nodes_of_all(
            some, tilts, omega, log_phis[few], most_panels=most_panels, negligible=negligible
        )
        if sum(len(nodes.edges) for nodes in sample) / len(few) * len(pairs) > most_in_all:
            raise CannotCertifyError("the loss oscillates too fast for quadrature")
    for index in alike:
        # only the panels for a short line are used for another group
        keeps = groups[index] == group or omega == 0.0
        like, group = like if keeps else None, groups[index]
        wanted = partial(
            certified_nodes,
            pairs[index],
            tilts,
            omega,
            tuple(log_phis[index].tolist()),
            most_panels=min(left, most_panels),
            negligible=negligible,
        )
        try:
            nodes = wanted(like=like)
        except CannotCertifyError:
            if like is None:
                raise
            like, nodes = None, wanted()
        fresh = len(nodes.edges) if like is None else fresh
        # panels are only ever cut, so that too fine ones are not reused
        like = nodes if len(nodes.edges) <= 1.3 * fresh else None
        left -= len(nodes.edges)
        found[index] = nodes
    return [found[index] for index in range(len(pairs))]


def _groups(betas: Array) -> list[int]:
    """A number for each release, the same for exponents so close that panels can be reused.

    Each whole exponent is a group of its own, since its panels are not graded.
    """
    distinct, place = np.unique(betas, return_inverse=True)
    if len(distinct) <= _FEW:
        return [int(p) for p in place]
    whole = betas == np.floor(betas)
    return [int(g) for g in np.where(whole, -betas, np.floor(betas / _CLOSE))]


def _nodes_on(pair: ShiftPair, left: Array, right: Array, tilts: Tilts, anchors: Array) -> Nodes:
    unit_nodes, unit_weights = _gauss_legendre(NODES_PER_PANEL)
    half = 0.5 * (right - left)
    z = ((0.5 * (right + left))[:, None] + half[:, None] * unit_nodes).ravel()
    log_weight = (np.log(half)[:, None] + np.log(unit_weights)).ravel()
    up, down = pair.log_mixture(z, pair.up), pair.log_mixture(z, pair.down)
    power = np.abs(z) ** pair.beta
    loss = up - down
    log_mass = up - power - pair.log_normalizer + log_weight
    log_phi, shares, roundoff = [], [], []
    for theta in tilts:
        exponent = log_mass + theta * loss
        peak = float(exponent.max())
        term = np.exp(exponent - peak)
        total = float(term.sum())
        shares.append(term / total)
        log_phi.append(peak + math.log(total))
        # the error of an exponent, a few ulps of each of its parts, is the relative error of its term
        ulps = 8.0 + (pair.beta + 3.0) * power + 6.0 * ((1.0 + theta) * np.abs(up) + theta * np.abs(down))
        roundoff.append(UNIT_ROUNDOFF * (float(shares[-1] @ ulps) + len(z)))
    mean = float(shares[0] @ loss)
    # a loss is the difference of two logarithms, and has their rounding errors, and those of their log odds
    # times the posterior probability of the record; close to a kink these are differences of powers
    size = np.abs(up) + np.abs(down)
    for shift in (pair.up, pair.down):
        if shift:
            odds, near = np.abs(pair.log_odds(z, shift)), np.abs(z) <= 2.0 * abs(shift)
            size += pair.share(z, shift) * (
                odds + np.where(near, power + np.abs(z - shift) ** pair.beta, 0.0)
            )
    loss_error = UNIT_ROUNDOFF * (2.0 * pair.beta + 10.0) * float(shares[0] @ size)
    deviation = math.sqrt(max(float(shares[0] @ (loss - mean) ** 2), 0.0))
    edges = np.append(np.sort(left), right.max())
    return Nodes(
        loss=loss,
        log_mass=log_mass,
        share=shares[0],
        mean=mean,
        deviation=deviation,
        log_phi=tuple(log_phi),
        quadrature=(0.0,) * len(tilts),
        roundoff=tuple(roundoff),
        loss_error=loss_error,
        anchors=anchors,
        edges=edges,
    )


def _refined(
    pair: ShiftPair,
    left: Array,
    right: Array,
    tilts: Tilts,
    omega: float,
    log_phis: Tilts,
    most_panels: int,
    negligible: float,
) -> tuple[Array, Array, Tilts]:
    """Split panels until each one's proved error is negligible; return them with the sums of the errors."""
    done: list[tuple[Array, Array]] = []
    totals, count = np.zeros(len(tilts)), 0
    for _ in range(_MOST_ROUNDS):
        CLOCK.check()
        enough = tuple(log_phi + negligible for log_phi in log_phis)
        log_error = log_panel_error(pair, left, right, tilts, omega, enough) - np.array(log_phis)[:, None]
        good = np.all(log_error <= negligible, axis=0)
        done.append((left[good], right[good]))
        totals += np.exp(log_error[:, good]).sum(axis=1)
        count += int(good.sum())
        left, right = left[~good], right[~good]
        if not len(left):
            return (
                np.concatenate([a for a, _ in done]),
                np.concatenate([b for _, b in done]),
                tuple(totals.tolist()),
            )
        if count + 2 * len(left) > most_panels:
            break
        cut = split_points(pair, left, right)
        left, right = np.concatenate([left, cut]), np.concatenate([cut, right])
    raise CannotCertifyError("the loss oscillates too fast for quadrature")


def split_points(pair: ShiftPair, left: Array, right: Array) -> Array:
    """Where to split: the middle, or close to the kink a panel touches."""
    share = np.full(len(left), 0.5)
    if pair.beta != int(pair.beta):
        share[np.isin(left, pair.kinks)] = 1.0 / 6.0
        share[np.isin(right, pair.kinks)] = 5.0 / 6.0
    return left + share * (right - left)
