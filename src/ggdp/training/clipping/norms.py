# SPDX-License-Identifier: Apache-2.0
"""The l_p norms of the rows of a matrix, safe from overflow and underflow, and the factors they lead to.

|x|^p leaves the range of float32 long before |x| does: 0.2^64 is already zero. Rows are therefore divided by
their largest entry m first, |x|_p = m * |x/m|_p, unless a look at the unscaled sums shows that it was not
needed.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ggdp.distributions.pytorch.fused import triton_is_installed
from ggdp.training.clipping.workspace import scratch

# Up to so many numbers, a float64 sum of squares costs less than a look at a float32 one.
_SMALL = 1 << 16
# Products with sums of powers up to here stay in the range of float32.
_LARGE = 1e30
# Up to this exponent, powers of float32 numbers stay inside the range of float64: (2^-149)^6 > 2^-1022.
_WIDE = 6.0
_TINY_EPS = {
    dtype: (torch.finfo(dtype).tiny, torch.finfo(dtype).eps) for dtype in (torch.float32, torch.float64)
}


def row_norms(rows: Tensor, p: float) -> Tensor:
    """The l_p norm of every row of an (n, d) matrix, as n numbers of float32 or float64.

    Guarantees:
        Relative error below `margin(...)` for every finite row whose norm is a normal number: nothing
        overflows and nothing vanishes on the way. A NaN or infinite entry gives a NaN or infinite norm.
    """
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    if rows.shape[1] == 0:
        return rows.new_zeros(rows.shape[0])
    if math.isinf(p):
        return _sizes(rows).amax(dim=1)
    if p == 1.0:
        return _sizes(rows).sum(dim=1)
    if p == 2.0 and has_kernels(rows):
        from ggdp.training.clipping.kernels import row_l2_norms

        return row_l2_norms(rows)
    if p == 2.0 and rows.dtype == torch.float32 and (rows.is_cuda or rows.numel() <= _SMALL):
        # No square of a float32 leaves the range of float64.
        norms: Tensor = torch.linalg.vector_norm(rows, 2, dim=1, dtype=torch.float64)
        return norms
    if rows.is_cuda:
        return _fused_norms(rows, p)
    norms = _unscaled_norms(rows, p)
    return norms if in_range(norms, rows.shape[1], p) else _scaled_norms(_sizes(rows), p)


def has_kernels(tensor: Tensor) -> bool:
    """Whether a Triton kernel can work on it."""
    return tensor.is_cuda and tensor.dtype == torch.float32 and triton_is_installed()


def combined(pieces: Sequence[Tensor], p: float) -> Tensor:
    """The l_p norms of vectors given by the l_p norms of their pieces, (n,) each."""
    if len(pieces) == 1:
        return pieces[0]
    if p == 2.0 and len(pieces) <= 4:
        return reduce(torch.hypot, pieces)  # which neither overflows nor underflows
    table = torch.stack(list(pieces), dim=1)
    if p > _WIDE:
        return row_norms(table, p)
    return table.double().pow_(p).sum(dim=1).pow_(1.0 / p)


class OuterProduct(NamedTuple):
    """Rows a_i and g_i, and whether g_i (a bias) stands beside g_i^T a_i; without a, it stands alone."""

    a: Tensor | None
    g: Tensor
    beside: bool

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """Both, or g."""
        return (self.g,) if self.a is None else (self.a, self.g)

    @property
    def is_plain(self) -> bool:
        """Whether all is there, in float32 and on a CPU."""
        return (
            self.a is not None
            and self.beside
            and self.g.dtype == torch.float32
            and self.g.device.type == "cpu"
        )


def outer_norms(pairs: Sequence[OuterProduct], p: float) -> list[Tensor]:
    """|g_i|_p |(a_i, 1)|_p for every example i of every pair: the norms of outer products beside biases."""
    small = sum(tensor.numel() for pair in pairs for tensor in pair.factors) <= _SMALL
    if small and 1.0 < p <= _WIDE and p != 2.0 and all(pair.is_plain for pair in pairs):
        norms = _joint_outer_norms(pairs, p)
        if norms is not None:
            return norms
    return [_outer_norms(pair, p) for pair in pairs]


def _outer_norms(pair: OuterProduct, p: float) -> Tensor:
    norms = row_norms(pair.g, p)
    if pair.a is None:
        return norms
    inputs = row_norms(pair.a, p)
    if not pair.beside:
        return norms * inputs
    one = inputs.new_ones(())
    if p == 2.0:
        return norms * torch.hypot(inputs, one)
    return norms * (inputs.clamp_min(1.0) if math.isinf(p) else combined([inputs, one.expand_as(inputs)], p))


def _joint_outer_norms(pairs: Sequence[OuterProduct], p: float) -> list[Tensor] | None:
    """The same for small factors, by few operations on all of them at once; None if a sum is very large.

    Cotangents of confident examples are tiny, so that those of each example are divided by their largest
    entry. What |a|^p may lose to underflow does not matter beside the 1 that a bias adds to it.
    """
    factors = [pair.factors[0] for pair in pairs] + [pair.g for pair in pairs]
    widths = [factor.shape[1] for factor in factors]
    table = torch.cat(factors, dim=1).abs_()
    cotangents = table[:, sum(widths[: len(pairs)]) :]
    top = cotangents.amax(dim=1).clamp_min_(_TINY_EPS[table.dtype][0])
    cotangents.div_(top.unsqueeze(1))
    parts = torch.split(_powers(table, p), widths, dim=1)
    sums = torch.stack([part.sum(dim=1) for part in parts])
    if not sums.max().item() < _LARGE:
        return None
    a, g = sums[: len(pairs)], sums[len(pairs) :]
    return list(a.add_(1.0).mul_(g).pow_(1.0 / p).mul_(top).unbind(0))


def in_range(norms: Tensor, terms: int, p: float) -> bool:
    """Whether no sum of powers behind these norms came near an end of the range.

    A term below the least normal number t may be lost. With d terms to a row at most d * t is lost, which
    does not matter beside a sum of d * t / eps. One look at the smallest and largest norm decides.
    """
    if not norms.numel():
        return True
    tiny, eps = _TINY_EPS[norms.dtype]
    least, most = norms.aminmax()
    return least.item() > (terms * tiny / eps) ** (1.0 / p) and most.item() < math.inf


def _unscaled_norms(rows: Tensor, p: float) -> Tensor:
    """The plain formula; `sum` adds in blocks, `vector_norm` in float32 loses digits with every term."""
    return _power_sums(rows if p == 2.0 else _sizes(rows), p).pow_(1.0 / p)


def _sizes(rows: Tensor) -> Tensor:
    return torch.abs(rows, out=scratch("sizes", rows.shape, rows))


def _fused_norms(rows: Tensor, p: float) -> Tensor:
    """`_scaled_norms` in as few passes as a GPU's own reductions allow, and without a look that waits."""
    largest: Tensor = torch.linalg.vector_norm(rows, math.inf, dim=1)
    scaled = rows / largest.clamp_min(_TINY_EPS[rows.dtype][0]).unsqueeze(1)
    return largest.mul_(torch.linalg.vector_norm(scaled, p, dim=1))


def _scaled_norms(sizes: Tensor, p: float) -> Tensor:
    """m * (sum of (sizes/m)^p)^(1/p), m the largest entry of each row; `sizes` >= 0 are overwritten."""
    largest = sizes.amax(dim=1)
    if math.isinf(p):
        return largest
    sizes.div_(largest.clamp_min(_TINY_EPS[sizes.dtype][0]).unsqueeze(1))
    return _power_sums(sizes, p).pow_(1.0 / p).mul_(largest)


def _power_sums(sizes: Tensor, p: float) -> Tensor:
    """The row sums of sizes^p, for sizes >= 0."""
    return _powers(sizes, p).sum(dim=1)


def _powers(sizes: Tensor, p: float) -> Tensor:
    """sizes^p, for sizes >= 0, in memory that the next call takes over.

    Halves of whole numbers take a root and products, several times faster than a power. Otherwise
    x^p = 2^(p log2 x), whose relative error p |log2 x| eps counts only while x^p does: of d terms, those with
    p |log2 x| > log2(d) add up to less than the largest, so that the sum is right to about log2(d) eps.
    """
    whole, powers = int(p), scratch("powers", sizes.shape, sizes)
    if p <= 4.0 and p - whole in (0.0, 0.5):
        if p == whole:
            torch.mul(sizes, sizes, out=powers)
        else:
            _raised(sizes, powers).sqrt_().mul_(sizes)
        for _ in range(whole - (2 if p == whole else 1)):
            powers.mul_(sizes)
        return powers
    return _raised(sizes, powers).log2_().mul_(p).exp2_()


def _raised(sizes: Tensor, out: Tensor) -> Tensor:
    """Zeros and subnormal numbers raised to the least normal one: roots and logarithms of them are slow."""
    return torch.clamp_min(sizes, _TINY_EPS[sizes.dtype][0], out=out)


def margin(dtype: torch.dtype, device: torch.device) -> float:
    """By how much, relatively, a computed norm may fall short of the true one: factors aim below C by it.

    Entries of a per-example gradient are dot products, |x|_p is a sum of powers under a root, and the factor
    and its product with the gradient round once each. In units of eps/2 (2^-24 in float32), a blocked sum of
    d terms costs about 2 log2(d) + 16, `_power_sums` log2(d), root, division and products a handful: below
    64 in all for d < 2^24. Half precision (and TensorFloat-32 in matrix products) round inputs to 8 to 11
    bits, where the same count would exceed 1; errors of different entries are independent there and average
    out.
    """
    if dtype == torch.float64:
        return 2.0**-47
    if dtype == torch.float32:
        return 2.0**-9 if device.type == "cuda" and may_use_tensor_float_32() else 2.0**-18
    return 2.0**-6


def product_rounding(like: Tensor) -> float:
    """By how much a sum of products may be off, as a share of the sum of the products' sizes."""
    if like.device.type == "cuda" and like.dtype == torch.float32 and may_use_tensor_float_32():
        return 2.0**-9  # both factors are rounded to 11 bits
    return 8.0 * _TINY_EPS[like.dtype][1]


def may_use_tensor_float_32() -> bool:
    """Whether products of float32 numbers on a GPU may round their factors to 11 bits."""
    try:
        return bool(torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # set by PyTorch's newer switches, which these do not read
        return True


@contextlib.contextmanager
def full_precision(like: Tensor) -> Iterator[None]:
    """A context in which products of float32 matrices on a GPU round no factor.

    A Gram matrix needs it: what is lost there, a norm close to zero would not outweigh.
    """
    switch = torch.backends.cuda.matmul
    if not like.is_cuda or like.dtype != torch.float32:
        yield
        return
    name, wanted = "allow_tf32", cast(Any, False)
    try:
        before = getattr(switch, name)
    except RuntimeError:  # set by PyTorch's newer switch
        name, wanted = "fp32_precision", "ieee"
        before = getattr(switch, name)
    if before == wanted:
        yield
        return
    setattr(switch, name, wanted)
    try:
        yield
    finally:
        setattr(switch, name, before)


def factors(norms: Tensor, bound: float, most: float) -> Tensor:
    """min(most, bound / norm) for every example, a zero norm giving the most."""
    return norms.reciprocal().mul_(bound).clamp_(max=most)
