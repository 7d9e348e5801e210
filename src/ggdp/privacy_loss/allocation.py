# SPDX-License-Identifier: Apache-2.0
"""The curve of a record that takes part in one of t releases, chosen at random.

With (P, Q) the pair of one release and L = dP/dQ, the pair of all t releases is the mixture of "P at step i, Q
elsewhere" over i, against Q everywhere. Its likelihood ratio is the mean W of t independent ratios L_i, drawn
under Q, so that

    D(x) = E_Q[(W - x)_+],      F(x) = D(x) - (1 - x) = E_Q[(x - W)_+].

**Ratios on a grid.** L goes to multiples of a spacing h: upwards by the chords of its own curve U(g) =
E[(L - g)_+], which is the hockey-stick divergence of one release; downwards by a convex function below U with
corners on the grid (`Side`). A law with the larger U has the larger D: as a function of one L_i, E[(W - x)_+]
is f(0) + f'(0) l + the integral of f''(g) (l - g)_+, all of it non-negative, so that its mean grows with the
total mass, with U(0) and with every U(g). Likewise F grows with every E[(g - L)_+]. What lies beyond the last
grid point G is cut off; as W falls by no more than the mean of (L_i - G)_+, D and F change by at most U(G).

**Sums.** The law of the sum is the t-fold convolution, by a transform of masses that are tilted by
e^(theta l), so that rounding is relative to the answer. A transform of depth log2(n) of non-negative numbers
that sum to one errs by at most 6 log2(n) units in every entry, a t-th power by squaring by 5 t units, relative.
Sums beyond the window wrap; Chernoff bounds their mass.

**Several grids.** Points near x = 1 need a fine grid and a short window, points far out a coarse and long one.
Each group of points has a transform of its own.
"""

from collections.abc import Callable

from ggdp.numerics import Array
from ggdp.privacy_loss.curves import Curve

_NEGLIGIBLE = 1e-18  # D and F below this are not followed
_EVERY = 3000  # grid points with a value of their own; beyond, ever fewer
_RATIO = 1.0 / 600.0
_LARGEST = 18  # log2 of the longest transform
_LARGE = 600.0

Known = Callable[[Array], Curve]
"""The curve of one release at given losses, increasing, one of them 0."""


def allocated(known: Known, steps: int) -> Curve:
    """The curve of one of `steps` releases, chosen at random, at losses of its own choice."""
    raise NotImplementedError
