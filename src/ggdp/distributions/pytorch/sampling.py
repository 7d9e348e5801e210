# SPDX-License-Identifier: Apache-2.0
"""`sample` and `add_noise_` for PyTorch tensors, by the fastest sampler of each device.

    on CUDA with Triton       one kernel that draws and adds (`fused`)
    on the CPU                the ziggurat of `ggdp.distributions.numpy_sampler`, exact in law
    on any other device       the inverse distribution function in plain PyTorch (`quantile`)

Which of them is taken never changes the law, only the draws that a seed gives.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ggdp import arguments
from ggdp.distributions import numpy_sampler
from ggdp.distributions.generalized_gaussian import GeneralizedGaussian
from ggdp.distributions.pytorch import fused, quantile
from ggdp.distributions.pytorch.streams import (
    CHACHA_SPAN,
    CHACHA_WORDS,
    PHILOX_WORDS,
    Generator,
    Stream,
    stream_of,
)
from ggdp.distributions.spherical import SphericalGeneralizedGaussian

_FLOAT_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_SMALL = 1 << 16
_PLAIN_CHUNK = 1 << 24  # Elements per pass of plain PyTorch: about a gigabyte of temporaries.
# P(|noise| > 128 scale) < 2^-184 for beta >= 1: a scale under max / 128 never overflows.
_HEADROOM = 128.0

Target = TypeVar("Target", torch.Tensor, Sequence[torch.Tensor])


def sample(
    noise: GeneralizedGaussian | SphericalGeneralizedGaussian,
    shape: Sequence[int],
    *,
    generator: Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Draw independent noise of the given shape; of spherical noise, independent vectors, with one axis more.

    Guarantees:
        * The law is that of `noise` on every device, tails included: nothing is truncated above 2^-95 per
          side.
        * Noise is computed in float64 for float64 tensors and in at least float32 for the others, then
          rounded once: float32 noise has 24 significant bits, bfloat16 noise 8. Off the CPU, noise in float32
          is read off a lattice of 2^-31 in probability, of 2^-95 where P(|X| > |x|) < 2^-14: every
          tail probability is right to a factor 1 +- 2^-16.
        * A vector of spherical noise is the direction of a Gaussian vector, drawn on the device, times a
          length that is drawn on the CPU in float64.
        * Successive calls with one generator give independent noise, and so do streams of different ranks.

    Args:
        noise: The law.
        shape: Shape of the result.
        generator: A `torch.Generator` whose seed is the caller's explicit choice, or a secure generator; left
            out, a fresh secure generator keyed by the operating system.
        device: Where the result lives.
        dtype: float64, float32, bfloat16 or float16; PyTorch's default dtype if left out.
    """
    if isinstance(noise, SphericalGeneralizedGaussian):
        whole = torch.empty((*shape, noise.dimension), device=device, dtype=dtype)
        return whole.copy_(_drawn_vectors(whole, noise, stream_of(generator)))
    out = torch.empty(tuple(shape), device=device, dtype=dtype)
    _draw_(out, noise, stream_of(generator), add=False)
    return out


def add_noise_(
    tensors: Target,
    noise: GeneralizedGaussian | SphericalGeneralizedGaussian,
    *,
    generator: Generator | None = None,
) -> Target:
    """Add independent noise in place to a tensor, or to every tensor of a list, and return what was given.

    All numbers together are the vector that spherical noise is added to: they must be as many as its
    dimension, of one dtype and on one device.

    The sum is taken in the precision the noise is computed in and rounded once. Autograd does not see it.
    `sample` has the guarantees; the tensors of a list get disjoint parts of the stream.
    """
    stream = stream_of(generator)
    if isinstance(noise, SphericalGeneralizedGaussian):
        _add_vector_(_listed(tensors), noise, stream)
        return tensors
    with torch.no_grad():
        for together in _drawn_together(_listed(tensors)):
            if len(together) == 1:
                _draw_(together[0], noise, stream, add=True)
            else:
                _add_together_(together, noise, stream)
    return tensors


class Piece(NamedTuple):
    """Some consecutive elements, in row-major order, of a larger tensor.

    Attributes:
        tensor: They, contiguous.
        start: The place of the first of them in the whole.
        whole: How many elements the whole has.
    """

    tensor: torch.Tensor
    start: int
    whole: int


def add_noise_to_pieces_(
    pieces: Sequence[Piece], noise: GeneralizedGaussian, *, generator: Generator | None = None
) -> None:
    """Add to pieces of tensors, in place, what `add_noise_` would add to those elements of the whole tensors.

    Processes that hold different pieces and generators in the same state add, together, the noise that one
    process would. The generator moves on as it would there. On CUDA with Triton a process draws the noise of
    its own pieces alone; elsewhere it draws the noise of one whole tensor after another and keeps its part.
    """
    stream = stream_of(generator)
    standing_in = [
        piece.tensor.new_empty(1).expand(piece.whole) for piece in pieces
    ]  # no memory of that size
    numbers = {id(tensor): number for number, tensor in enumerate(standing_in)}
    with torch.no_grad():
        for together in _drawn_together(standing_in):
            some = [pieces[numbers[id(tensor)]] for tensor in together]
            _check(some[0].tensor.dtype, noise)
            if some[0].tensor.is_cuda and fused.triton_is_installed():
                _add_to_piece_(some[0], noise, stream)
                continue
            sizes = [piece.whole for piece in some]
            if sum(sizes):
                drawn = _drawn(some[0].tensor.new_empty(1).expand(sum(sizes)), noise, stream)
                for piece, part in zip(some, torch.split(drawn, sizes), strict=True):
                    own = part[piece.start : piece.start + piece.tensor.numel()]
                    piece.tensor.add_(own.view(piece.tensor.shape))


def _add_to_piece_(piece: Piece, noise: GeneralizedGaussian, stream: Stream) -> None:
    """Launch the kernel at the span of blocks in which the piece begins."""
    if piece.whole == 0:
        return
    tensor = piece.tensor
    with torch.cuda.device(tensor.device):
        key, first = stream.kernel_key(tensor.device), stream.reserve(piece.whole)
        words, shape = (
            (CHACHA_WORDS, fused.CHACHA_SHAPE) if stream.secure else (PHILOX_WORDS, fused.PHILOX_SHAPE)
        )
        span = words * (CHACHA_SPAN if stream.secure else 1)
        before = piece.start % span
        drawn = torch.zeros(before + tensor.numel(), dtype=tensor.dtype, device=tensor.device)
        drawn[before:] = tensor.reshape(-1)
        if tensor.numel():
            block = first + (piece.start - before) // words
            fused.launch(drawn, noise, key, block, add=True, secure=stream.secure, shape=shape)
            tensor.copy_(drawn[before:].view(tensor.shape))


def _drawn_together(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Runs of small tensors on the CPU, where a call costs more than its draws; every other one by itself."""
    runs: list[list[torch.Tensor]] = []
    full = size = _SMALL + 1
    for tensor in tensors:
        small = tensor.device.type == "cpu" and tensor.numel() < _SMALL
        joins = small and size + tensor.numel() <= _SMALL and tensor.dtype == runs[-1][-1].dtype
        size = size + tensor.numel() if joins else tensor.numel() if small else full
        if joins:
            runs[-1].append(tensor)
        else:
            runs.append([tensor])
    return runs


def _add_together_(tensors: list[torch.Tensor], noise: GeneralizedGaussian, stream: Stream) -> None:
    _check(tensors[0].dtype, noise)
    sizes = [tensor.numel() for tensor in tensors]
    drawn = _drawn(torch.empty(sum(sizes), dtype=tensors[0].dtype), noise, stream)
    if _are_adjacent(tensors):
        tensors[0].as_strided((sum(sizes),), (1,)).add_(drawn)
        return
    for tensor, part in zip(tensors, torch.split(drawn, sizes), strict=True):
        tensor.add_(part.view(tensor.shape))


def _are_adjacent(tensors: list[torch.Tensor]) -> bool:
    """Whether they lie one after the other in one piece of memory, so that they can be written as one."""
    memory, place = tensors[0].untyped_storage().data_ptr(), tensors[0].storage_offset()
    for tensor in tensors:
        if tensor.storage_offset() != place or not tensor.is_contiguous():
            return False
        if tensor.untyped_storage().data_ptr() != memory:
            return False
        place += tensor.numel()
    return True


def _add_vector_(tensors: list[torch.Tensor], noise: SphericalGeneralizedGaussian, stream: Stream) -> None:
    sizes = [tensor.numel() for tensor in tensors]
    if sum(sizes) != noise.dimension:
        raise ValueError(
            f"tensors must hold as many numbers as the noise has dimensions, {noise.dimension}, got "
            f"{sum(sizes)}; calibrate noise with dimension={sum(sizes)}"
        )
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        raise ValueError(
            "tensors must have one dtype and one device for spherical noise, got several; "
            "take independent noise, or bring them together first"
        )
    with torch.no_grad():
        drawn = _drawn_vectors(tensors[0].new_empty(1).expand(noise.dimension), noise, stream)
        for tensor, part in zip(tensors, torch.split(drawn, sizes), strict=True):
            tensor.add_(part.view(tensor.shape))


def _drawn_vectors(target: torch.Tensor, noise: SphericalGeneralizedGaussian, stream: Stream) -> torch.Tensor:
    """Vectors along the last axis of the target's shape, in the precision they are computed in."""
    span = torch.finfo(target.dtype)
    longest = float(noise.radius_isf(2.0**-184))
    hint = f"{target.dtype} cannot hold such noise, use a wider dtype"
    arguments.real("length of the noise", longest, least=span.tiny, most=span.max, hint=hint)

    def draws(law: GeneralizedGaussian) -> Callable[[int], NDArray[np.float64]]:
        return lambda many: _drawn(torch.empty(many, dtype=torch.float64), law, stream).numpy()

    exponentials = draws(GeneralizedGaussian(1.0, 1.0))  # their distance from zero
    vectors = _drawn(target, GeneralizedGaussian(2.0, 1.0), stream)
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=torch.float64)
    lengths = lengths.clamp_min(span.tiny)  # one number may be drawn as zero, with a probability of 2^-31
    radii = noise.radii(
        lengths.numel(), draws(GeneralizedGaussian(2.0, math.sqrt(2.0))), lambda n: -np.abs(exponentials(n))
    )
    factor = torch.from_numpy(radii).to(target.device).view(lengths.shape) / lengths
    return vectors.mul_(factor.to(vectors.dtype))


def _listed(tensors: torch.Tensor | Iterable[torch.Tensor]) -> list[torch.Tensor]:
    listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    for tensor in listed:
        arguments.instance("tensors", tensor, torch.Tensor)
    return listed


def _draw_(target: torch.Tensor, noise: GeneralizedGaussian, stream: Stream, *, add: bool) -> None:
    _check(target.dtype, noise)
    if target.numel() == 0:
        return
    if target.is_cuda and fused.triton_is_installed() and target.is_contiguous():
        with torch.cuda.device(target.device):
            fused.draw_(target, noise, stream, add=add)
        return
    drawn = _drawn(target, noise, stream)
    if add:
        target.add_(drawn)  # In the wider of the two precisions, rounded once.
    else:
        target.copy_(drawn)


def _drawn(target: torch.Tensor, noise: GeneralizedGaussian, stream: Stream) -> torch.Tensor:
    """Return noise of the target's shape in the precision it is computed in."""
    precision = quantile.noise_dtype(target.dtype)
    if target.device.type == "cpu":
        values = np.empty(target.numel(), np.float64 if precision == torch.float64 else np.float32)
        numpy_sampler.fill(values, noise, stream.words)
        return torch.from_numpy(values).view(target.shape)
    out = torch.empty(target.numel(), dtype=precision, device=target.device)
    if target.is_cuda and fused.triton_is_installed():
        with torch.cuda.device(target.device):
            fused.draw_(out, noise, stream, add=False)
        return out.view(target.shape)
    table = quantile.coefficients(noise, precision, target.device)
    for start in range(0, out.numel(), _PLAIN_CHUNK):
        part = out[start : start + _PLAIN_CHUNK]
        part.copy_(quantile.noise_from_words(stream.triples(part.numel(), part.device), table))
    return out.view(target.shape)


def _check(dtype: torch.dtype, noise: GeneralizedGaussian) -> None:
    arguments.instance("noise", noise, GeneralizedGaussian)
    arguments.one_of("dtype", dtype, _FLOAT_DTYPES)
    span = torch.finfo(dtype)
    hint = f"{dtype} cannot hold such noise, use a wider dtype"
    arguments.real("scale", noise.scale, least=span.tiny, most=span.max / _HEADROOM, hint=hint)
