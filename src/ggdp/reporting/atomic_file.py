# SPDX-License-Identifier: Apache-2.0
"""Write a file whole or not at all."""

from ggdp.atomic_file import write_atomically

__all__ = ["write_atomically"]
