# SPDX-License-Identifier: Apache-2.0
"""The door for mechanisms that this library does not know."""

from abc import ABC


class CustomMechanism(ABC):  # noqa: B024  (a marker: what an accountant needs is registered in privacy_loss)
    """One release whose output laws the user describes.

    A subclass is plain data: frozen, hashable, equal when it means the same. It may stand wherever one
    release may: alone, in `Composed`, in `PoissonSampled`. What it costs is said by registering a function
    with `ggdp.privacy_loss.custom.cells_of`; docs/custom-noise.md has examples. A class that cannot
    inherit is let in by `CustomMechanism.register(TheClass)`.
    """
