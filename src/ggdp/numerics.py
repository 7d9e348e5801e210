# SPDX-License-Identifier: Apache-2.0
"""What the numerical rooms share: the type of an array of doubles, and the size of one rounding."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Doubles."""

UNIT_ROUNDOFF = 2.0**-53
"""The largest relative error of one correctly rounded operation on doubles."""
