# SPDX-License-Identifier: Apache-2.0
"""l_p norms of materialised per-example gradients, and the factors that clip them.

Opacus keeps the gradient of every example, one tensor per parameter with the examples along dimension 0. The
norm of an example runs over all of them.

Rounding. For p = 2 squares are summed in float64, so that factors stay as close to Opacus's as these are to
the truth. For other p powers are taken in float32, x^p = 2^(p log2 x) with |p log2 x| < 128, and a norm is
right to 1.1e-5. Multiplying a float32 gradient by a float32 factor rounds twice by 2^-24. `_margin` is more
than all of that together, so the true l_p norm of what is added to the sum never exceeds the clipping norm.
"""

import math
from collections.abc import Iterator, Sequence

import torch

from ggdp.training.clipping.norms import combined, row_norms

LEAST_CLIP_NORM = 1e-20  # below, the rounding of subnormal products is no longer covered by the margin
_OPACUS_OFFSET = 1e-6  # Opacus divides by norm + 1e-6
_CHUNK = 1 << 22  # numbers that are copied or widened at a time


def example_norms(gradients: Sequence[torch.Tensor], p: float) -> torch.Tensor:
    """The l_p norm of each example's gradient over all tensors, in float64; not finite where that is not.

    >>> rows = [torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[4.0], [1.0]])]
    >>> example_norms(rows, 2.0)
    tensor([5.0000, 1.7321], dtype=torch.float64)
    """
    device = gradients[0].device
    return combined([_norms(gradient, p).to(device) for gradient in gradients], p).double()


def clip_factors(norms: torch.Tensor, clip_norm: float, p: float) -> torch.Tensor:
    """min(1, clip_norm / norm), a little less: Opacus's factor (which divides by norm + 1e-6) and the margin.

    Guarantees:
        factor * gradient, computed in float32 or float64, has a true l_p norm of at most `clip_norm`.
    """
    return (clip_norm * (1.0 - _margin(p)) / (norms + _OPACUS_OFFSET)).clamp(max=1.0)


def weighted_sum(factors: torch.Tensor, gradient: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The sum over examples of factor * gradient, taken in float32 at least and returned as `dtype`."""
    wide = torch.promote_types(dtype, torch.float32)
    weights, gradient = factors.to(device=gradient.device, dtype=wide), gradient.to(wide)
    if gradient.is_cuda and torch.get_float32_matmul_precision() != "highest":
        # TensorFloat-32 would round both to 11 bits, which no margin of ours covers.
        return (weights.view(-1, *[1] * (gradient.ndim - 1)) * gradient).sum(dim=0).to(dtype)
    return torch.einsum("i,i...->...", weights, gradient).to(dtype)


def joint_norm(bounds: Sequence[float], p: float) -> float:
    """The l_p norm that vectors with these l_p norms have together, rounded up."""
    if math.isinf(p):
        return max(bounds)
    top = max(bounds)
    total: float = math.fsum((bound / top) ** p for bound in bounds)
    return top * math.pow(total, 1.0 / p) * (1.0 + 2.0**-46)


def _margin(p: float) -> float:
    return 2.0**-22 if p == 2.0 else 2.0**-16


def _norms(gradient: torch.Tensor, p: float) -> torch.Tensor:
    """The norms of one parameter's gradients, a chunk of examples at a time."""
    flat = gradient.reshape(len(gradient), math.prod(gradient.shape[1:]))
    if not flat.numel():
        return torch.zeros(len(flat), dtype=torch.float64, device=flat.device)
    return torch.cat([_chunk_norms(flat[part], p) for part in _slices(*flat.shape)])


def _chunk_norms(rows: torch.Tensor, p: float) -> torch.Tensor:
    if p != 2.0:
        return row_norms(rows, p).double()
    found: torch.Tensor = torch.linalg.vector_norm(rows, ord=2, dim=1, dtype=torch.float64)
    return found


def _slices(num_rows: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK // width)
    return (slice(start, start + step) for start in range(0, num_rows, step))
