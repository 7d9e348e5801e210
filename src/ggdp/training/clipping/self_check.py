# SPDX-License-Identifier: Apache-2.0
"""A check of clipping that does not trust its rules: some examples of a batch, run alone by plain autograd.

For each chosen example the norm of its gradient, and what it adds to the clipped sum, must be what clipping
used. A model in which rows are not examples, in which examples influence each other, or for which a rule is
wrong, does not pass. The run then stops before anything of the batch is released.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ggdp.errors import SelfCheckError, UnsupportedModelError
from ggdp.training.clipping.norms import combined, may_use_tensor_float_32, row_norms
from ggdp.training.clipping.site import Pass

# How many examples are looked at in the first step, and in later ones that are checked.
_FIRST, _LATER, _SPARE = 3, 1, 4


def is_due(step: int) -> bool:
    """Whether step number `step`, from 1, is checked: steps 1, 2, 32, and then every 256th."""
    return step in (1, 2, 32) or step % 256 == 0


def chosen_examples(count: int, step: int) -> tuple[list[int], list[int]]:
    """The examples of a batch to look at, others in other steps, and some to spare."""
    number = _FIRST if step == 1 else _LATER
    order = [(7919 * step + place * count // (number + _SPARE)) % count for place in range(number + _SPARE)]
    different = list(dict.fromkeys(order))
    return different[:number], different[number:]


class Tolerance(NamedTuple):
    """How far, relatively, two computations of one gradient may differ.

    Attributes:
        doubt: Beyond this an example is doubtful. By rounding alone a unit may change its sign between two
            computations, and with it a few percent of a layer's gradient; that happens to few examples.
        refusal: Beyond this no rounding explains the difference.
    """

    doubt: float
    refusal: float


def tolerance(dtype: torch.dtype, device: torch.device) -> Tolerance:
    """What is allowed in a precision."""
    if dtype == torch.float64:
        return Tolerance(1e-5, 1e-5)
    if dtype != torch.float32:
        return Tolerance(0.45, 0.9)  # eight bits, through dozens of layers
    return (
        Tolerance(0.1, 0.5) if device.type == "cuda" and may_use_tensor_float_32() else Tolerance(5e-3, 0.25)
    )


@dataclass(frozen=True)
class Used:
    """What clipping used for the examples of a pass.

    Attributes:
        norms: The l_p norms that clipping found, one for every example of the batch.
        weights: By number of parameter, the factor of every example.
        share: What one example adds to the clipped sums, by number of parameter, computed as clipping does.
    """

    norms: Tensor
    weights: Mapping[int, Tensor]
    share: Callable[[int], Mapping[int, Tensor]]


def check_pass(
    each: Pass,
    parameters: tuple[Tensor, ...],
    names: Mapping[int, str],
    chosen: list[int],
    spare: list[int],
    used: Used,
    p: float,
) -> None:
    """Compare what clipping used for the chosen examples with their gradients alone.

    If one of them is doubtful, the spare ones are looked at too, and most must agree.

    Raises:
        SelfCheckError: They disagree.
        UnsupportedModelError: An example cannot be run alone.
    """
    # An input may be as long as the batch by accident, and hold no row for each example: then another way to
    # read the inputs agrees.
    places = each.model_calls[0].ambiguous[:4]
    ways = [shared for size in range(len(places) + 1) for shared in itertools.combinations(places, size)]
    lowered = any(call.autocast.states for call in each.model_calls)
    limits = tolerance(torch.bfloat16 if lowered else parameters[0].dtype, used.norms.device)
    first: UnsupportedModelError | None = None
    for shared in ways:
        try:
            gap_of = partial(_gap, each, parameters, names, used, p, shared)
            return _look(chosen, spare, limits, gap_of)
        except UnsupportedModelError as error:
            first = first or error
    if first is not None:
        raise first


class _Gap(NamedTuple):
    """The largest relative difference of an example, and what differs."""

    size: float
    what: str


def _look(chosen: list[int], spare: list[int], limits: Tolerance, gap_of: Callable[[int], _Gap]) -> None:
    """Refuse if one example is far off, or most of those looked at are doubtful."""
    doubtful: list[_Gap] = []
    tested = 0
    for tested, index in enumerate([*chosen, *spare], start=1):
        gap = gap_of(index)
        if gap.size > limits.doubt:
            doubtful.append(gap)
        if gap.size > limits.refusal or (tested >= len(chosen) and not doubtful):
            break
    if doubtful and (max(doubtful).size > limits.refusal or 2 * len(doubtful) > tested):
        raise SelfCheckError(f"{max(doubtful).what}. {_CAUSES}")


def _gap(
    each: Pass,
    parameters: tuple[Tensor, ...],
    names: Mapping[int, str],
    used: Used,
    p: float,
    shared: tuple[int, ...],
    index: int,
) -> _Gap:
    """How far an example's gradient alone is from what clipping used."""
    alone = _alone(each, index, parameters, shared)
    pieces = [row_norms(gradient.reshape(1, -1), p).double() for gradient in alone.values()]
    expected = float(combined(pieces, p)) if pieces else 0.0
    found = float(used.norms[index])
    if not math.isfinite(expected) and not math.isfinite(found):
        return _Gap(0.0, "")  # contributes nothing
    gap = _Gap(
        _relative(abs(found - expected), max(found, expected)),
        f"example {index} of the batch has a gradient of norm {expected:.6g} when it is run through the "
        "model "
        f"alone, and clipping used {found:.6g}",
    )
    share = used.share(index)
    norms: list[Tensor] = []
    for number, tensor in share.items():  # one after the other: in float64 they take twice the room
        added, own = tensor.double(), torch.zeros((), dtype=torch.float64, device=tensor.device)
        if number in alone:
            own = alone[number].double() * used.weights[number][index]
        norms += torch._foreach_norm([added - own, added, own])
    rows = torch.stack(norms).view(-1, 3).t().tolist() if norms else [[], [], []]  # one wait for all
    whole = math.hypot(*rows[2])
    for number, difference, *sizes in zip(share, *rows, strict=True):
        relative = _relative(difference, max(sizes) + 0.1 * whole)
        what = (
            f"what example {index} of the batch adds to the clipped gradient of parameter {names[number]} "
            f"differs by {relative:.1%} from what it adds when it is run through the model alone"
        )
        gap = max(gap, _Gap(relative, what))
    return gap


def _relative(difference: float, size: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / size if math.isfinite(difference) and size > 0.0 else math.inf


_CAUSES = (
    "Either examples of a batch influence each other in the model (batch statistics, mixed or reordered "
    "examples, a "
    "loss inside the model that is no plain mean over examples), or the model draws random numbers that "
    "are not "
    "PyTorch's. Nothing of this batch was released. Let every example be computed from its own rows alone, "
    "with the "
    "examples in dimension 0 throughout"
)


def compare_norms(index: int, found: float, expected: float, norms: Tensor) -> None:
    """Compare the norm of an example's gradient in a batch with that alone.

    Raises:
        SelfCheckError: They differ by more than rounding does.
    """
    limits = tolerance(norms.dtype, norms.device)
    if _relative(abs(found - expected), max(found, expected)) > 10.0 * limits.doubt:
        raise SelfCheckError(
            f"example {index} of the batch has a gradient of norm {expected:.6g} alone, and one of norm "
            f"{found:.6g} in the batch. {_CAUSES}"
        )


def _alone(
    each: Pass, index: int, parameters: tuple[Tensor, ...], shared: tuple[int, ...]
) -> dict[int, Tensor]:
    """The gradient of one example by parameter, the sum over the model's calls."""
    total: dict[int, Tensor] = {}
    for call in each.model_calls:
        if call.was_changed:
            raise UnsupportedModelError(
                "an input of the model was changed in place after the call, so that its clipped gradients "
                "cannot "
                "be checked; use the operation that makes a new tensor"
            )
        for number, gradient in enumerate(call.alone(index, parameters, each.scale or 1.0, shared)):
            if gradient is not None:
                gradient = gradient.to_dense().to(torch.promote_types(gradient.dtype, torch.float32))
                total[number] = total[number] + gradient if number in total else gradient
    return total
