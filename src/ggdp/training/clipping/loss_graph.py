# SPDX-License-Identifier: Apache-2.0
"""Reads from autograd's graph whether a scalar loss is a plain mean, or sum, of one term per example.

Clipping bounds what one example adds to a sum of gradients, provided that its term of the loss depends on
that example alone. A scalar loss does not say whether it does. A weighted cross entropy with mean reduction
divides every term by the weights of all labels in the batch; a mean over the tokens that are not padding
divides by their number. Adding one example then changes the gradients of all the others.

So `loss.backward()` is let through only where the graph between the loss and the model's outputs shows that

    loss = constant / n * (sum over examples of a term of the example's own rows),    n = size of the batch,

or the same without 1/n. Operations on rows are known by name (`_ELEMENTWISE` and the functions below it);
whatever is not known is refused, with the way out: `backward(losses)` with one loss per example.
"""

import functools
import math
import re
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils.checkpoint import CheckpointError

from ggdp.errors import UnsupportedModelError

_WAY_OUT = (
    "compute one loss per example (reduction='none', averaged over an example's own positions if it has "
    "several) and call backward(losses) of the private object in place of loss.backward()"
)


@dataclass
class LossTerms:
    """What was found out about a loss.

    Attributes:
        sizes: For every reduction over the batch, how many numbers each example has in it.
        pending: How many targets each example has in a mean over targets, or whether it has its one target;
            looked at when the device is waited for anyway. A number where all have as many.
    """

    sizes: list[float] = field(default_factory=list)
    pending: list[Tensor | int] = field(default_factory=list)

    def settle(self, known: set[int]) -> None:
        """Look at what was put off: over how many targets of each example the loss is a mean.

        It must be as many for every example of every batch; `known` holds the numbers of the first. A
        language model that ignores the last position of every sequence passes, one with sequences of
        different lengths does not.

        Raises:
            UnsupportedModelError: The number of targets depends on the data (`ignore_index`).
        """
        ends = [torch.stack(torch.aminmax(torch.as_tensor(each))).int().tolist() for each in self.pending]
        if not known:
            known.update(least for least, _ in ends)
        for least, most in ends:
            if least != most or least not in known:
                raise UnsupportedModelError(
                    "the loss is a mean over targets that are not ignore_index, of which examples have "
                    f"{min(least, *known)} to {max(most, *known)}. Their total depends on the other "
                    f"examples of the batch, so that one example changes all other gradients; {_WAY_OUT}"
                )


class RowTags:
    """Marks nodes of the graph whose output has one row, or a block of rows, per example.

    Args:
        owner: Whose forward passes they are; the marks of one pass have this object to themselves.
    """

    def __init__(self, owner: object) -> None:
        self._tag, self._owner = object(), owner

    def mark(self, node: Node | None, dim: int) -> None:
        """Examples are dimension `dim` of this node's outputs. The mark lives as long as the node does."""
        if node is not None:
            cast(dict[str, Any], node.metadata)["ggdp"] = (self._tag, dim, self._owner)

    def dim_of(self, node: Node) -> int | None:
        """The dimension that holds examples, None if the node is not marked by this object."""
        mark = cast(dict[str, Any], node.metadata).get("ggdp")
        return mark[1] if mark is not None and mark[0] is self._tag else None

    def is_below(self, root: Node | None) -> bool:
        """Whether a marked node can be reached."""
        return _reaches(root, lambda mark: mark[0] is self._tag)


def is_of(root: Node | None, owner: object) -> bool:
    """Whether a node can be reached that was marked in any forward pass of this owner."""
    return _reaches(root, lambda mark: mark[2] is owner)


def _reaches(root: Node | None, wanted: Callable[[Any], bool]) -> bool:
    seen: set[Node] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        mark = cast(dict[str, Any], node.metadata).get("ggdp")
        if mark is not None and wanted(mark):
            return True
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)
    return False


_OUTPUTS = "ggdp outputs"


def mark_output(output: Tensor, token: object) -> None:
    """Remember on its node that a tensor is an output of the model, known by this token."""
    if output.grad_fn is not None:
        noted = cast(dict[str, Any], output.grad_fn.metadata).setdefault(_OUTPUTS, [])
        noted.append((output.output_nr, token))


def outputs_used(roots: Sequence[Tensor]) -> list[object]:
    """The tokens of the outputs that a loss is computed from, and not merely through another output.

    A model that returns its loss and its logits computes one from the other. Of these the loss is used.

    Raises:
        UnsupportedModelError: An output is used directly, and also to compute another one that is used.
    """
    used: dict[object, Node] = {}
    _collect([(root.grad_fn, root.output_nr) for root in roots], used)
    if len(used) > 1:
        inner: dict[object, Node] = {}
        for node in set(used.values()):
            _collect(list(node.next_functions), inner)
        if not used.keys().isdisjoint(inner):
            raise UnsupportedModelError(
                "the loss uses an output of the model directly and through another output that was "
                "computed from it; compute all of it inside the model, or all of it from the other outputs"
            )
    return list(used)


def _collect(starts: Sequence[tuple[Node | None, int]], found: dict[object, Node]) -> None:
    """Go down to the first outputs on every path."""
    seen: set[tuple[Node, int]] = set()
    waiting = list(starts)
    while waiting:
        node, number = waiting.pop()
        if node is None or (node, number) in seen:
            continue
        seen.add((node, number))
        marks = cast(dict[str, Any], node.metadata).get(_OUTPUTS, ())
        tokens = [token for place, token in marks if place == number]
        if tokens:
            found.update(dict.fromkeys(tokens, node))
        else:
            waiting.extend(node.next_functions)


def read_loss(root: Node, tags: RowTags, num_examples: int, *, is_mean: bool) -> LossTerms:
    """Verify that a scalar is a plain mean (or sum) over examples, as the caller was told.

    Raises:
        UnsupportedModelError: It is not, or it cannot be seen.
    """
    reader = _Reader(tags, num_examples, is_mean)
    reader.scalar(root, averaged=False)
    return reader.terms


def check_rows(root: Node, tags: RowTags, num_examples: int) -> None:
    """Verify that row i of a tensor depends on the rows of example i alone.

    Raises:
        UnsupportedModelError: It does not, or it cannot be seen.
    """
    if _Reader(tags, num_examples, is_mean=False).rows(root) not in (0, None):
        raise _unknown(root)


def _unknown(node: Node) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"the loss uses {_plain_name(node)}, of which it is not known that it keeps examples apart; "
        f"{_WAY_OUT}"
    )


def _plain_name(node: Node) -> str:
    return _without_ending(node.name())


@functools.cache
def _without_ending(name: str) -> str:
    return re.sub(r"Backward\d*$", "", name.rpartition("::")[2])


def _shape(node: Node) -> tuple[int, ...]:
    """Of the node's output in the forward pass."""
    return tuple(node._input_metadata[0].shape)


def _saved(node: Node, name: str) -> Any:
    return getattr(node, f"_saved_{name}")


def _signed(value: int, dims: int) -> int:
    """A saved dimension counted from the front; PyTorch stores negative ones as unsigned 64-bit numbers."""
    value = value - (1 << 64) if value >= 1 << 63 else value
    return value + dims if value < 0 else value


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ELEMENTWISE = _names("""
    Abs Acos Acosh Add Addcdiv Addcmul Alias Asin Asinh Atan Atan2 Atanh BinaryCrossEntropy
    BinaryCrossEntropyWithLogits Celu Clamp ClampMax ClampMin Clone Copy Cos Cosh Digamma Div Elu Erf Erfc
    Erfinv Exp Exp2 Expm1 Fill Fmod Frac Gelu Hardshrink Hardsigmoid Hardswish Hardtanh HuberLoss Hypot
    LeakyRelu Lerp Lgamma Log Log10 Log1P Log2 LogSigmoid Logaddexp Logaddexp2 Logit MaskedFill Maximum
    Minimum Mish MseLoss Mul NanToNum NativeDropout Neg Pow Prelu Reciprocal Relu Relu6 Rsqrt Rsub Selu
    Sgn Sigmoid Sign Silu Sin Sinc Sinh SmoothL1Loss SoftMarginLoss Softplus Softshrink Sqrt Square Sub
    Tan Tanh Threshold ToCopy Where Xlogy
""")
# Operations along dimensions that they keep, in which examples must not be.
_ALONG = _names("""
    Cummax Cummin Cumprod Cumsum Flip Gather IndexSelect LogSoftmax Logcumsumexp Roll Slice Softmax Sort Split
    SplitWithSizes Topk
""")
# Operations that remove the dimensions they run along, unless told to keep them.
_REDUCING = _names("""
    Amax Amin LinalgVectorNorm Logsumexp Max Mean Median Min Mode Norm Prod Std StdMean Sum Var VarMean
""")
_VIEWS = _names("View UnsafeView ReshapeAlias")
_SAME_NUMBER = _names("Sum Mean Squeeze Unsqueeze Select ToCopy Clone Alias")
# Losses that reduce over everything themselves: 0 is no reduction, 1 the mean, 2 the sum.
_FUSED = _names("""
    BinaryCrossEntropy BinaryCrossEntropyWithLogits HuberLoss MseLoss MultiMarginLoss MultilabelMarginLoss
    NllLoss NllLoss2D SmoothL1Loss SoftMarginLoss
""")


class _Reader:
    def __init__(self, tags: RowTags, num_examples: int, is_mean: bool) -> None:
        self._tags, self._num_examples, self._is_mean = tags, num_examples, is_mean
        self._known: dict[Node, int | None] = {}
        self.terms = LossTerms()

    def scalar(self, node: Node | None, *, averaged: bool) -> None:
        """Go down from the loss, through operations that are linear, to reductions over the batch."""
        if node is None or not node.next_functions or not self._tags.is_below(node):
            return  # a constant, or a parameter (whose use outside of its module is noticed elsewhere)
        name, below = _plain_name(node), [following for following, _ in node.next_functions]
        if name in _FUSED and _saved(node, "reduction"):
            self._reduced(node, averaged, is_mean=_saved(node, "reduction") == 1)
        elif name in ("Sum", "Mean") and not self._is_reduced(below[0]):
            self._reduced(node, averaged, is_mean=name == "Mean")
        elif name in ("Add", "Sub", "Neg", "Stack", "Cat"):
            for each in below:  # constants among them end at once
                self.scalar(each, averaged=averaged)
        elif name in ("Mul", "Div") and len(carriers := list(filter(self._tags.is_below, below))) == 1:
            is_size = self._number(node) == self._num_examples and name == "Div" and not averaged
            self.scalar(carriers[0], averaged=averaged or is_size)
        elif name in _VIEWS | _SAME_NUMBER:
            self.scalar(below[0], averaged=averaged)
        else:
            raise _unknown(node)

    def _is_reduced(self, node: Node | None) -> bool:
        """Whether a node lies above all reductions over the batch: everything on it has become one number."""
        if node is None:
            return True
        name = _plain_name(node)
        if self._tags.dim_of(node) is not None:
            return False
        if name in _FUSED and _saved(node, "reduction"):
            return True
        if name in ("Sum", "Mean"):
            try:
                below = self.rows(node.next_functions[0][0])
            except UnsupportedModelError:
                return False
            return below is None or below in self._dims(node, len(_saved(node, "self_sym_sizes")))
        return all(self._is_reduced(following) for following, _ in node.next_functions)

    def _number(self, node: Node) -> float:
        """The constant of a product or quotient above the reductions.

        Raises:
            UnsupportedModelError: It is a tensor, and so may depend on the data.
        """
        found = [_saved(node, name) for name in ("other", "self") if hasattr(node, f"_saved_{name}")]
        number = next((each for each in found if each is not None), None)
        if isinstance(number, Tensor) and number.numel() == 1:
            value = float(number.item())
            is_python_float = number.dtype == torch.float64 and number.device.type == "cpu"
            if is_python_float or value in (1.0, -1.0, float(self._num_examples)):
                return value
            raise UnsupportedModelError(
                f"the loss is multiplied or divided by {value:g}, which is not a Python float and may have "
                "been computed from the batch (a number of tokens, a sum of weights, a GradScaler's scale). "
                f"If it is a constant, write it as a float (loss / 4.0); otherwise {_WAY_OUT}"
            )
        if isinstance(number, (int, float)):
            return float(number)
        raise _unknown(node)

    def _reduced(self, node: Node, averaged: bool, *, is_mean: bool) -> None:
        name = _plain_name(node)
        sizes = (
            _saved(node, "self_sym_sizes") if name in ("Sum", "Mean") else tuple(_saved(node, "self").shape)
        )
        counted = sizes
        if name in ("NllLoss", "NllLoss2D"):
            counted = tuple(_saved(node, "target").shape)
            if is_mean:
                self._check_targets(node)
        elif name in ("MultiMarginLoss", "MultilabelMarginLoss"):
            counted = sizes[:1]
        for each, _ in node.next_functions:
            dim = self.rows(each)
            if dim is not None and name in ("Sum", "Mean"):
                dims = self._dims(node, len(sizes))
                if dim not in dims:
                    raise _unknown(node)
                counted = tuple(sizes[each] for each in dims)
        if (is_mean and averaged) or (is_mean or averaged) != self._is_mean:
            found, told = ("a sum", "mean") if self._is_mean else ("a mean", "sum")
            twice = is_mean and averaged
            found = "divided by the size of the batch twice" if twice else f"{found} over the batch"
            raise UnsupportedModelError(
                f"the loss is {found}, and loss_reduction is {told!r}; pass the other, or {_WAY_OUT}"
            )
        self.terms.sizes.append(math.prod(counted) / self._num_examples if is_mean else 1.0)

    def _check_targets(self, node: Node) -> None:
        if _saved(node, "weight") is not None:
            raise UnsupportedModelError(
                "the loss is a mean with class weights, which divides by the weights of all labels in the "
                f"batch, so that one example changes the gradients of all others; {_WAY_OUT}"
            )
        target = _saved(node, "target")
        if len(target) % self._num_examples:
            raise _unknown(node)
        counted = _saved(node, "total_weight")  # targets that are not ignored; float32 counts to 2^24
        if counted.is_cpu and counted.item() == target.numel() < 1 << 24:
            self.terms.pending.append(target.numel() // self._num_examples)
            return
        is_target = target != _signed(_saved(node, "ignore_index"), 0)
        self.terms.pending.append(is_target.reshape(self._num_examples, -1).sum(dim=1))

    def _dims(self, node: Node, count: int) -> tuple[int, ...]:
        """The dimensions that a reduction removes."""
        dims = getattr(node, "_saved_dim", None)
        if dims is None or dims == ():
            return tuple(range(count))
        return tuple(_signed(dim, count) for dim in ((dims,) if isinstance(dims, int) else dims))

    def rows(self, node: Node | None) -> int | None:
        """The dimension of a node's output that holds examples; None if the output has none of them.

        Raises:
            UnsupportedModelError: The operation may mix examples.
        """
        if node is None or (not node.next_functions and self._tags.dim_of(node) is None):
            return None
        if node not in self._known:
            dim = self._tags.dim_of(node)
            self._known[node] = self._found(node) if dim is None else dim
            dim, shape = self._known[node], _shape(node)
            if dim is not None and (dim >= len(shape) or shape[dim] % self._num_examples):
                raise _unknown(node)
        return self._known[node]

    def _found(self, node: Node) -> int | None:
        below = [(self.rows(following), following) for following, _ in node.next_functions]
        carried = [(dim, following) for dim, following in below if dim is not None]
        if not carried:
            return None
        name, shape = _plain_name(node), _shape(node)
        dim, source = carried[0]
        inner = len(_shape(source)) if source is not None else len(shape)
        if name in _FUSED and name.startswith(("Nll", "Multi")):
            if dim == 0 and _saved(node, "reduction") == 0:
                return 0
        elif name in _FUSED and _saved(node, "reduction"):
            pass
        elif name in _ELEMENTWISE or name == "Expand":
            places = {each - len(_shape(following)) for each, following in carried if following is not None}
            if len(places) == 1:  # counted from the end, where broadcasting lines shapes up
                return places.pop() + len(shape)
        elif name in _ALONG:
            if dim not in self._dims(node, inner):
                return dim
        elif name in _REDUCING:
            dims = self._dims(node, inner)
            if dim not in dims:
                return dim if len(shape) == inner else dim - sum(each < dim for each in dims)
        elif name == "Select":
            along = _signed(_saved(node, "dim"), inner)
            if along != dim:
                return dim - (along < dim)
        elif name == "Unsqueeze":
            return dim + (_signed(_saved(node, "dim"), len(shape)) <= dim)
        elif name == "Squeeze":
            if dim == 0 and shape and shape[0] == _shape(source)[0]:  # type: ignore[arg-type]
                return 0
        elif name in ("Permute", "Transpose", "T"):
            return self._permuted(node, name, dim, inner)
        elif name in _VIEWS:
            return self._viewed(dim, _shape(source), shape)  # type: ignore[arg-type]
        elif name in ("Bmm", "Baddbmm"):
            if all(each == 0 for each, _ in carried):
                return 0
        elif name == "Mm":  # by a matrix that holds no examples
            if dim == 0 and len(carried) == 1 and source is node.next_functions[0][0]:
                return 0
        elif name == "Index":  # [arange(n), labels] takes one number of every row
            rows = _saved(node, "indices")[0]
            if (
                dim == 0
                and rows is not None
                and torch.equal(rows, torch.arange(len(rows), device=rows.device))
            ):
                return 0
        elif name == "Cat":
            elsewhere = _signed(_saved(node, "dim"), inner) != dim
            if elsewhere and len({each for each, _ in carried}) == 1:
                return dim
        raise _unknown(node)

    def _permuted(self, node: Node, name: str, dim: int, count: int) -> int:
        if name == "Permute":
            order = [_signed(each, count) for each in _saved(node, "dims")]
            return order.index(dim)
        pair = (0, 1) if name == "T" else (_saved(node, "dim0"), _saved(node, "dim1"))
        one, other = (_signed(each, count) for each in pair)
        return other if dim == one else one if dim == other else dim

    def _viewed(self, dim: int, before: Sequence[int], after: Sequence[int]) -> int | None:
        """Where the examples of dimension `dim` are after a change of shape."""
        if tuple(before[: dim + 1]) == tuple(after[: dim + 1]):
            return dim
        lead = math.prod(before[:dim])
        for place in range(len(after)):
            if math.prod(after[: place + 1]) % (lead * self._num_examples) == 0:
                return place if lead % max(1, math.prod(after[:place])) == 0 else len(after)
        return len(after)  # which no shape has: refused


_listeners: "weakref.WeakSet[Any]" = weakref.WeakSet()
_plain_backward = torch.autograd.backward


def _backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    """torch.autograd.backward, of which private models are told before it begins.

    Every `loss.backward()` comes through here. Only at this point is the whole graph of the loss at hand:
    while backward runs, autograd frees it node by node.
    """
    if torch._C._current_graph_task_id() != -1:
        return _plain_backward(tensors, grad_tensors, *args, **kwargs)  # inside another: checkpointing
    roots = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    told = [each for each in list(_listeners) if each.heard(roots, grad_tensors)]
    is_retained = bool(kwargs.get("retain_graph", args[0] if args else False))
    for each in told:
        each.listening, each.is_retained = True, is_retained
    try:
        return _plain_backward(tensors, grad_tensors, *args, **kwargs)
    except CheckpointError as error:
        if not any(each.is_checked for each in told):
            raise
        raise UnsupportedModelError(
            "activation checkpointing runs layers again by other operations than those of a checked step, "
            "as it does with fused attention that has dropout on a GPU; call the model under "
            "torch.nn.attention.sdpa_kernel(SDPBackend.MATH), or without dropout in attention"
        ) from error
    finally:
        for each in told:
            each.listening = False


def listen(listener: Any) -> Callable[[], None]:
    """Tell a listener (`site.Tape`) of every call of backward; call what is returned to stop."""
    _listeners.add(listener)
    torch.autograd.backward = _backward

    def stop() -> None:
        _listeners.discard(listener)
        if not _listeners and torch.autograd.backward is _backward:
            torch.autograd.backward = _plain_backward

    return stop
