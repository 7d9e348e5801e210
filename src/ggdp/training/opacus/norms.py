# SPDX-License-Identifier: Apache-2.0
"""l_p norms of materialised per-example gradients, the factors that clip them, and their sums.

Opacus keeps the gradient of every example, one tensor per parameter with the examples along dimension 0. The
norm of an example runs over all of them. The numbers in these tensors may have any precision (bfloat16 under
autocast, products in TensorFloat-32): whatever they are, they are what is measured, clipped and added.

Rounding. Norms, factors, products and sums are float64. The sum of n clipped gradients is then wrong by at
most (n + 2) 2^-53 times the sum of their norms, in every l_p norm, so that two neighbouring sums differ by at
most the clipped norm and 2 n (n + 2) 2^-53 clip_norm: below 2^-22 clip_norm for n <= 32,000. A float64 norm
of d coordinates is right to d 2^-54, below 2^-23 for d <= 2^31. For p other than 1, 2 and infinity powers are
taken in float32, x^p = 2^(p log2 x), and a norm is right to 2^-18. `_margin` is more than all of that. On
devices without float64 (Apple's) everything is float32, and the rounding of sums is not covered.
"""

import math
from collections.abc import Iterator, Sequence

import torch

LEAST_CLIP_NORM = 1e-100  # above it, no product of a factor and a gradient that matters is subnormal
MOST_EXAMPLES = 32_000  # of one sum, whose rounding the smallest margin covers
_OPACUS_OFFSET = 1e-6  # Opacus divides by norm + 1e-6
_CHUNK = 1 << 18  # numbers that are widened at a time, so that they stay in a processor's cache
_CHUNK_ELSEWHERE = 1 << 24  # on other devices, where a call costs more than the memory


def example_norms(gradients: Sequence[torch.Tensor], p: float) -> torch.Tensor:
    """The l_p norm of each example's gradient over all tensors, in float64; not finite where that is not.

    >>> rows = [torch.tensor([[3.0, 0.0], [1.0, 1.0]]), torch.tensor([[4.0], [1.0]])]
    >>> example_norms(rows, 2.0)
    tensor([5.0000, 1.7321], dtype=torch.float64)
    """
    device = gradients[0].device
    pieces = [_norms(gradient, p).to(device) for gradient in gradients]
    return pieces[0] if len(pieces) == 1 else _row_norms(torch.stack(pieces, dim=1), p)


def clip_factors(
    norms: torch.Tensor, clip_norm: float, p: float, most_examples: int = MOST_EXAMPLES
) -> torch.Tensor:
    """min(1, clip_norm / norm), a little less: Opacus's factor (which divides by norm + 1e-6) and the margin.

    Guarantees:
        Sums of `weighted_sum` with these factors, over up to `most_examples`, move by at most `clip_norm` in
        the true l_p norm when an example is added or removed; rounding of norms, products and sums included.
    """
    aim = clip_norm * (1.0 - _margin(p, most_examples))
    return (aim / (norms + _OPACUS_OFFSET)).clamp_(max=1.0)


def weighted_sum(factors: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The sum over examples of factor * gradient, in float64 (in float32 on devices without it)."""
    flat = gradient.reshape(len(gradient), math.prod(gradient.shape[1:]))
    wide = _wide(gradient.device)
    weights = factors.to(device=gradient.device, dtype=wide)
    parts = [weights[part] @ flat[part].to(wide) for part in _slices(flat)]
    total = parts[0] if parts else torch.zeros(flat.shape[1], dtype=wide, device=gradient.device)
    for part in parts[1:]:
        total += part
    return total.view(gradient.shape[1:])


def joint_norm(bounds: Sequence[float], p: float) -> float:
    """The l_p norm that vectors with these l_p norms have together, rounded up."""
    if math.isinf(p):
        return max(bounds)
    top = max(bounds)
    total: float = math.fsum((bound / top) ** p for bound in bounds)
    return top * math.pow(total, 1.0 / p) * (1.0 + 2.0**-46)


def _margin(p: float, most_examples: int) -> float:
    measuring = 2.0**-22 if p in (1.0, 2.0, math.inf) else 2.0**-16
    return measuring + 2.0**-52 * (max(most_examples, MOST_EXAMPLES) + 2.0) ** 2


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _norms(gradient: torch.Tensor, p: float) -> torch.Tensor:
    """The norms of one parameter's gradients, a chunk of examples at a time."""
    flat = gradient.reshape(len(gradient), math.prod(gradient.shape[1:]))
    if not flat.numel():
        return torch.zeros(len(flat), dtype=_wide(flat.device), device=flat.device)
    parts = [_row_norms(flat[part], p) for part in _slices(flat)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _row_norms(rows: torch.Tensor, p: float) -> torch.Tensor:
    wide = _wide(rows.device)
    if p in (1.0, 2.0, math.inf):
        found: torch.Tensor = torch.linalg.vector_norm(rows, ord=p, dim=1, dtype=wide)
        return found
    rows = rows if rows.dtype == torch.float64 else rows.float()
    largest = rows.abs().amax(dim=1)
    tiny = torch.finfo(torch.float32).tiny
    # Divided by the largest, nothing overflows; what falls below float32 is raised to it and does not matter.
    sizes = (rows / largest.clamp(min=torch.finfo(rows.dtype).tiny).unsqueeze(1)).abs_().float()
    powers = sizes.clamp_(min=tiny).log2_().mul_(p).exp2_()
    return largest.to(wide) * powers.sum(dim=1, dtype=wide).pow_(1.0 / p)


def _slices(flat: torch.Tensor) -> Iterator[slice]:
    num_rows, width = flat.shape
    chunk = _CHUNK if flat.device.type == "cpu" else _CHUNK_ELSEWHERE
    step = max(1, chunk // max(width, 1))
    return (slice(start, start + step) for start in range(0, num_rows, step))
