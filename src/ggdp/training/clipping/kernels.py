# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call, no-any-return"
"""Triton kernels for norms of gradients, each in one pass over memory. Imported where there is a GPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS = 1024  # of a program


@triton.jit(do_not_specialize=["num_rows"])  # which changes with every batch, and is not worth a new kernel
def _row_norms_kernel(rows, norms, num_rows, length, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row = row < num_rows
    total = tl.zeros((ROWS, BLOCK), tl.float64)
    for start in range(0, length, BLOCK):
        place = start + tl.arange(0, BLOCK)
        inside = is_row[:, None] & (place < length)[None, :]
        numbers = tl.load(rows + row[:, None] * stride + place[None, :], mask=inside, other=0.0)
        numbers = numbers.to(tl.float64)
        total += numbers * numbers
    tl.store(norms + row, tl.sqrt(tl.sum(total, axis=1)), mask=is_row)


def row_l2_norms(rows: Tensor) -> Tensor:
    """The l_2 norm of every row of a float32 matrix, in float64, in which no square leaves the range."""
    num_rows, length = rows.shape
    if rows.stride(1) != 1:
        rows = rows.contiguous()
    norms = rows.new_empty(num_rows, dtype=torch.float64)
    block = min(_NUMBERS, triton.next_power_of_2(length))
    together = _NUMBERS // block
    if num_rows:
        _row_norms_kernel[(triton.cdiv(num_rows, together),)](
            rows, norms, num_rows, length, rows.stride(0), ROWS=together, BLOCK=block
        )
    return norms


@triton.jit
def _patch_products_kernel(
    inputs,
    outputs,
    places,
    squares,
    bounds,
    num_inputs,
    num_outputs,
    KERNEL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    inputs += example * num_inputs * num_inputs
    outputs += example * num_outputs * num_outputs
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    bound = tl.zeros((ROWS,), tl.float32)
    for first in range(0, num_outputs, ROWS):
        t = first + tl.arange(0, ROWS)
        for start in range(0, num_outputs, COLUMNS):
            s = start + tl.arange(0, COLUMNS)
            patches = tl.zeros((ROWS, COLUMNS), tl.float32)
            for k in range(KERNEL):
                p = tl.load(places + k * num_outputs + t, mask=t < num_outputs, other=-1)
                q = tl.load(places + k * num_outputs + s, mask=s < num_outputs, other=-1)
                inside = (p >= 0)[:, None] & (q >= 0)[None, :]
                patches += tl.load(inputs + p[:, None] * num_inputs + q[None, :], mask=inside, other=0.0)
            inside = (t < num_outputs)[:, None] & (s < num_outputs)[None, :]
            others = tl.load(outputs + t[:, None] * num_outputs + s[None, :], mask=inside, other=0.0)
            products = patches * others
            total += products
            is_own = t[:, None] == s[None, :]
            bound += tl.sqrt(tl.maximum(tl.sum(tl.where(is_own, products, 0.0), axis=1), 0.0))
    tl.store(squares + example, tl.sum(tl.sum(total, axis=1), axis=0))
    tl.store(bounds + example, tl.sum(bound, axis=0))


def patch_products(inputs: Tensor, outputs: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """sum_ts A_ts B_ts and sum_t (A_tt B_tt)^(1/2), (n,) each, where A_ts is the sum over k of G_(p_kt p_ks).

    Args:
        inputs: G, products of two positions of the input, (n, P, P).
        outputs: B, products of two positions of the output, (n, T, T).
        places: p, which position of the input lies under part k of the kernel at position t, (K, T); -1 for
            none.
    """
    count, num_inputs, num_outputs = len(inputs), inputs.shape[1], outputs.shape[1]
    squares, bounds = inputs.new_empty(count), inputs.new_empty(count)
    size = triton.next_power_of_2(num_outputs)
    _patch_products_kernel[(count,)](
        inputs,
        outputs,
        places,
        squares,
        bounds,
        num_inputs,
        num_outputs,
        KERNEL=len(places),
        ROWS=min(32, size),
        COLUMNS=min(64, size),
    )
    return squares, bounds
