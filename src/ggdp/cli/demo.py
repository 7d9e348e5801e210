# SPDX-License-Identifier: Apache-2.0
"""`ggdp demo`."""


def demo() -> None:
    """Demo."""
