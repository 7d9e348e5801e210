# SPDX-License-Identifier: Apache-2.0
"""Characteristic functions at equally spaced frequencies.

A quadrature gives nodes, each with a loss L and a share of the whole mass. Their characteristic function at
the frequency w is the sum over the nodes of share * e^{i w L}. It is needed at K frequencies w_0 + k h, for
k = 0 ... K-1, and is computed in one of two ways.

By a matrix product. Write k = a B + b with b < B and a < A. Then e^{i w L} is the product of e^{i w_0 L},
(e^{i B h L})^a and (e^{i h L})^b, so that A B frequencies cost A + B powers per node.

By a fast Fourier transform, if there are many nodes and many frequencies. With x = h L, a Gaussian of
variance 2 tau around every x is evaluated on a grid of M points. The transform of the grid is divided by the
transform of a Gaussian. By Poisson summation the result is

    sum over nodes of share * sum over n of e^{-tau ((k + n M)^2 - k^2)} e^{i (k + n M) x}.

Its term n = 0 is the one that is wanted. With k < K and M at least 8 K, all other terms together are at most
3 e^{-3/4 tau M^2}. A Gaussian is evaluated only at the r grid points on either side of x. The others would
have added at most sqrt(a/pi) e^{tau K^2} 2 e^{-a r^2} / (1 - e^{-2 a r}), with a = pi^2 / (tau M^2).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len

from ggdp.numerics import UNIT_ROUNDOFF, Array
from ggdp.privacy_loss.quadrature import Nodes

_MOST_ENTRIES = 4_000_000  # entries of the matrices of one product: 64 MB
_LEAST_TRANSFORMED = 3e5  # nodes times frequencies from which on a transform is faster
_OVERSAMPLED = 8  # M / K, at least
_TAU_M_SQUARED = 52.0  # tau M^2; the terms n != 0 then add up to at most 4e-17
_GAUSSIAN_REACH = 15  # r; the other grid points would have added at most 1e-18
_NODES_AT_ONCE = 100_000


def of_nodes(part: Nodes, step: float, count: int) -> tuple[NDArray[np.complex128], Array]:
    """phi(theta + i w) / phi(theta) e^{-i w mean} at w = k step, and a bound on its rounding error.

    The error of the quadrature is not included; its bound is `part.quadrature[0]`.
    """
    omega = step * np.arange(count)
    value = characteristic(part.share, part.loss - part.mean, 0.0, step, count)
    units = 8.0 + power_units(count) + 8.0 * omega * part.deviation
    return value, part.roundoff[0] + UNIT_ROUNDOFF * units + omega * part.loss_error


def characteristic(
    share: Array | NDArray[np.complex128], loss: Array, first: float, step: float, count: int
) -> NDArray[np.complex128]:
    """The sum of share * e^{i w loss} at w = first + k step, for k = 0 ... count-1.

    Three errors have to be charged: the rounding of the phases w loss, the rounding of the sum, and
    `power_units(count)` units of round-off of the sum of all |share|.
    """
    if len(loss) * count > _LEAST_TRANSFORMED:
        return _transformed(share * np.exp(1j * first * loss) if first else share, loss, step, count)
    block, rows = _blocks(count)
    at_once = max(1, _MOST_ENTRIES // (block + rows))
    total = np.zeros((rows, block), dtype=np.complex128)
    for begin in range(0, len(loss), at_once):
        part = slice(begin, begin + at_once)
        fine = _powers(np.exp(1j * step * loss[part]), block)
        coarse = _powers(np.exp(1j * (step * block) * loss[part]), rows)
        coarse *= share[part] * np.exp(1j * first * loss[part]) if first else share[part]
        total += coarse @ fine.T
    return np.asarray(total.ravel()[:count])


def power_units(count: int) -> float:
    """A bound, in units of round-off, on the error of `characteristic`.

    For the matrix product: a product of two complex numbers errs by less than 3 units of its size, and so
    does the exponential that is raised to a power; there are at most A + B of each. For the transform, which
    has at most 16 K points: 6 log2(16 K) units of the sum of its inputs, times e^{tau K^2} <= e^(52/64).
    """
    return 6.0 * sum(_blocks(count)) + 14.0 * math.log2(2 * _OVERSAMPLED * count) + 64.0


def _blocks(count: int) -> tuple[int, int]:
    """B and A with A B >= count, both about the square root of count."""
    block = max(1, math.isqrt(count - 1) + 1)
    return block, -(-count // block)


def _powers(base: NDArray[np.complex128], count: int) -> NDArray[np.complex128]:
    """base^k for k = 0 ... count-1, one row each; row k is a product of k factors, in some order."""
    rows = np.empty((count, len(base)), dtype=np.complex128)
    rows[0] = 1.0
    done = 1
    while done < count:
        further = min(done, count - done)
        np.multiply(rows[:further], rows[done - 1] * base, out=rows[done : done + further])
        done += further
    return rows


def _transformed(
    share: Array | NDArray[np.complex128], loss: Array, step: float, count: int
) -> NDArray[np.complex128]:
    """The sum of share * e^{i k step loss} by one transform; the proof is in the module docstring."""
    size = next_fast_len(_OVERSAMPLED * count, real=True)
    offsets, narrow = np.arange(1 - _GAUSSIAN_REACH, _GAUSSIAN_REACH + 1), math.pi**2 / _TAU_M_SQUARED
    real, imaginary = np.zeros(size), np.zeros(size if np.iscomplexobj(share) else 0)
    for begin in range(0, len(loss), _NODES_AT_ONCE):
        part = slice(begin, begin + _NODES_AT_ONCE)
        places = loss[part] * (step * size / (2.0 * math.pi))
        before = np.floor(places)
        index = ((before.astype(np.int64)[:, None] + offsets) % size).ravel()
        weight = np.exp(-narrow * ((places - before)[:, None] - offsets) ** 2)
        real += np.bincount(index, weights=(weight * share.real[part, None]).ravel(), minlength=size)
        if len(imaginary):
            imaginary += np.bincount(index, weights=(weight * share.imag[part, None]).ravel(), minlength=size)
    growth = math.sqrt(narrow / math.pi) * np.exp(_TAU_M_SQUARED * (np.arange(count) / size) ** 2)
    found = np.fft.rfft(real)[:count].conj()
    if len(imaginary):
        found += 1j * np.fft.rfft(imaginary)[:count].conj()
    return np.asarray(found * growth)
