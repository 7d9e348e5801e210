# SPDX-License-Identifier: Apache-2.0
"""A check of clipping that does not trust its rules: some examples of a batch, run alone by plain autograd.

For each chosen example the norm of its gradient, and what it adds to the clipped sum, must be what clipping
used. A model in which rows are not examples, in which examples influence each other, or for which a rule is
wrong, does not pass. The run then stops before anything of the batch is released.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ggdp.training.clipping.norms import combined, row_norms
from ggdp.training.clipping.refusals import UnsupportedModelError
from ggdp.training.clipping.site import Pass

# How many examples are looked at in the first step, and in later ones that are checked.
_FIRST, _LATER = 3, 1


class SelfCheckError(UnsupportedModelError):
    """An example that was computed alone has another gradient than clipping used; nothing was released."""


def is_due(step: int) -> bool:
    """Whether step number `step`, from 1, is checked: steps 1, 2, 32, and then every 256th."""
    return step in (1, 2, 32) or step % 256 == 0


def chosen_examples(count: int, step: int) -> list[int]:
    """The examples of a batch to look at, others in other steps."""
    number = min(count, _FIRST if step == 1 else _LATER)
    return sorted({(7919 * step + place * count // number) % count for place in range(number)})


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """How far, relatively, two computations of one gradient may differ by rounding alone.

    It leaves room for units whose sign flips by a rounding error, and lies below what mixed or misplaced
    examples do.
    """
    if dtype == torch.float64:
        return 1e-5
    if dtype == torch.float32:
        return 2e-2 if device.type == "cuda" else 5e-3
    return 0.25


@dataclass(frozen=True)
class Used:
    """What clipping used for some examples of a pass.

    Attributes:
        norms: The l_p norms that clipping found, one for every example of the batch.
        weights: By number of parameter, the factor of every example.
        sums: By number of parameter, the clipped sum over the chosen examples, computed as clipping does.
    """

    norms: Tensor
    weights: Mapping[int, Tensor]
    sums: Mapping[int, Tensor]


def check_pass(
    each: Pass,
    parameters: tuple[Tensor, ...],
    names: Mapping[int, str],
    chosen: list[int],
    used: Used,
    p: float,
) -> None:
    """Compare what clipping used for the chosen examples with their gradients alone.

    Raises:
        SelfCheckError: They disagree.
        UnsupportedModelError: An example cannot be run alone.
    """
    # An input may be as long as the batch by accident, and hold no row for each example: then another way to
    # read the inputs agrees.
    places = each.model_calls[0].ambiguous[:4]
    ways = [shared for size in range(len(places) + 1) for shared in itertools.combinations(places, size)]
    for shared in ways:
        try:
            return _compare(each, parameters, names, chosen, used, p, shared)
        except UnsupportedModelError:
            if shared == ways[-1]:
                if len(ways) > 1:
                    return _compare(each, parameters, names, chosen, used, p, ())  # for its message
                raise


def _compare(
    each: Pass,
    parameters: tuple[Tensor, ...],
    names: Mapping[int, str],
    chosen: list[int],
    used: Used,
    p: float,
    shared: tuple[int, ...],
) -> None:
    lowered = any(call.autocast for call in each.model_calls)
    limit = tolerance(torch.bfloat16 if lowered else parameters[0].dtype, used.norms.device)
    sums = {number: torch.zeros_like(tensor) for number, tensor in used.sums.items()}
    for index in chosen:
        alone = _alone(each, index, parameters, shared)
        pieces = [row_norms(gradient.reshape(1, -1), p).double() for gradient in alone.values()]
        expected = float(combined(pieces, p)) if pieces else 0.0
        found = float(used.norms[index])
        if not math.isfinite(expected) and not math.isfinite(found):
            continue  # contributes nothing
        _compare_norms(index, found, expected, limit)
        for number, gradient in alone.items():
            if number in sums:
                sums[number] += gradient * used.weights[number][index]
    whole = math.sqrt(sum(float(total.double().square().sum()) for total in sums.values()))
    for number, total in sums.items():
        gap = float((used.sums[number].double() - total.double()).norm())
        size = max(float(total.double().norm()), float(used.sums[number].double().norm()))
        if not gap <= limit * size + 0.1 * limit * whole:
            raise SelfCheckError(
                f"what some examples of the batch add to the clipped gradient of parameter {names[number]} "
                "differs "
                f"by {gap / size:.1%} from what they add when they are run through the model alone. {_CAUSES}"
            )


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
    _compare_norms(index, found, expected, tolerance(norms.dtype, norms.device))


def _compare_norms(index: int, found: float, expected: float, limit: float) -> None:
    if not abs(found - expected) <= limit * max(found, expected):
        raise SelfCheckError(
            f"example {index} of the batch has a gradient of norm {expected:.6g} when it is run through the "
            f"model alone, and clipping used {found:.6g}. {_CAUSES}"
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
