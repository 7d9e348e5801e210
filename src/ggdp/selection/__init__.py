# SPDX-License-Identifier: Apache-2.0
"""Private choices: publish an index, not the numbers behind it."""

from ggdp.selection.noisy_argmax import noisy_argmax

__all__ = ["noisy_argmax"]
