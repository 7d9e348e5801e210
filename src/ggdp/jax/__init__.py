# SPDX-License-Identifier: Apache-2.0
"""Generalized Gaussian noise for JAX: `sample(key, noise, shape, dtype)`."""

from ggdp.jax.sampling import sample

__all__ = ["sample"]
