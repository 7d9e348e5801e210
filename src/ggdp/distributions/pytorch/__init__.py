# SPDX-License-Identifier: Apache-2.0
"""Noise for PyTorch tensors, on the CPU and on CUDA: `sample` and `add_noise_`."""

from ggdp.distributions.pytorch.sampling import add_noise_, sample

__all__ = ["add_noise_", "sample"]
