# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a model draws in its forward pass (dropout and the like), kept and given out again.

The gradient of one example is found by running part of a model a second time: for that example alone, or for
a chunk of examples. The second run must see the random numbers of the first. `Recording` is a context in
which every draw is kept; `Replaying` is a context in which the draws are handed out again, in the same order,
whole or only the part that belongs to one example. A model whose draws cannot be seen this way is refused.
"""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from ggdp.errors import UnsupportedModelError


def example_part(tensor: Tensor, like: torch.Size, index: Tensor, num_examples: int) -> Tensor | None:
    """The part of a batch's `tensor` that belongs to example `index`, in the shape `like` that it has alone.

    None if the shapes do not tell which part that is.
    """
    if tensor.shape == like:
        return tensor
    index = index.to(tensor.device)
    if tensor.dim() == len(like):
        other = [dim for dim in range(len(like)) if tensor.shape[dim] != like[dim]]
        if len(other) == 1 and tensor.shape[other[0]] == num_examples * like[other[0]]:
            split: Tensor = tensor.unflatten(other[0], (num_examples, like[other[0]]))  # type: ignore[no-untyped-call]
            return split.index_select(other[0], index.reshape(1)).squeeze(other[0])
    if tensor.numel() == num_examples * like.numel():
        return tensor.reshape(num_examples, *like).index_select(0, index.reshape(1)).squeeze(0)
    return None


class Autocast:
    """The state of autocast at some moment, to be restored for a second run."""

    def __init__(self) -> None:
        self.states = [
            (device, torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        ]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Run as then."""
        with contextlib.ExitStack() as stack:
            for device, dtype in self.states:
                stack.enter_context(torch.autocast(device, dtype=dtype))
            yield


class _Seen(TorchFunctionMode):
    """A context in which the functions of `_SEEN`, those that draw random numbers, are handled here."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        handler = _SEEN.get(func)
        if handler is None:
            return func(*args, **(kwargs or {}))
        return handler(self, func, *args, **(kwargs or {}))

    def drawn(self, draw: Callable[[], Tensor], shape: torch.Size) -> Tensor:
        """The random tensor of this shape that `draw` would give."""
        raise NotImplementedError  # implemented by both contexts below

    def seen(
        self,
        plain: Callable[[], Tensor],
        draw: Callable[[], Tensor],
        shape: torch.Size,
        apply: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """What an operation gives that draws inside.

        Args:
            plain: The operation itself.
            draw: Draws what it draws.
            shape: Of that.
            apply: The result, from what was drawn.
        """
        return apply(self.drawn(draw, shape))


class Recording(_Seen):
    """A context that keeps what is drawn in it, in order.

    What is computed, and how far the generator moves, is what it would be without the context: activation
    checkpointing, which runs layers again outside of it, finds the same operations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Tensor] = []

    def drawn(self, draw: Callable[[], Tensor], shape: torch.Size) -> Tensor:
        """Draw, and keep a copy."""
        result = draw()
        self.draws.append(result.detach().clone())
        return result

    def seen(
        self,
        plain: Callable[[], Tensor],
        draw: Callable[[], Tensor],
        shape: torch.Size,
        apply: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The plain result. What it drew is found by putting the generator back and drawing again."""
        before = _generator_states()
        result = plain()
        after = _generator_states()
        _put_back(before)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            drawn = draw()
        if not _same(_generator_states(), after):  # the operation draws in another way: use ours
            _put_back(before)
            return apply(self.drawn(draw, shape))
        self.draws.append(drawn)
        return result


class Replaying(_Seen):
    """A context in which every draw is answered from `draws`.

    Args:
        draws: What a `Recording` kept.
        where: The part of the model that is run again, for messages.
        index: The example whose part is wanted; None stands for the whole batch.
        num_examples: Of the batch in which the draws were recorded.

    Raises:
        UnsupportedModelError: More is drawn than was recorded, or in another shape, or past this context.
    """

    def __init__(
        self, draws: list[Tensor], where: str, *, index: Tensor | None = None, num_examples: int = 1
    ) -> None:
        super().__init__()
        self._left, self._where = list(draws), where
        self._index, self._num_examples = index, num_examples
        self._before: tuple[Tensor, ...] = ()

    def __enter__(self) -> "Replaying":
        self._before = _generator_states()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        super().__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
        if kind is None and not _same(self._before, _generator_states()):
            raise UnsupportedModelError(
                f"{self._where} draws random numbers in a way that cannot be repeated for one example "
                "(inside "
                "a fused or compiled operation); use nn.Dropout, or draw with torch.rand"
            )

    def drawn(self, draw: Callable[[], Tensor], shape: torch.Size) -> Tensor:
        """The next draw that was recorded, or its part."""
        kept = self._left.pop(0) if self._left else None
        if kept is not None:
            part = kept if self._index is None else self._part(kept, shape)
            if part is not None and part.shape == shape:
                return part
        raise UnsupportedModelError(
            f"{self._where} draws other random numbers for one example than for the batch (does it shuffle "
            "the examples, or draw one number for several of them?); draw with one row per example"
        )

    def _part(self, kept: Tensor, shape: torch.Size) -> Tensor | None:
        assert self._index is not None
        return example_part(kept, shape, self._index, self._num_examples)


def _generator_states() -> tuple[Tensor, ...]:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return torch.get_rng_state(), torch.cuda.get_rng_state()
    return (torch.get_rng_state(),)


def _put_back(states: tuple[Tensor, ...]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state(states[1])


def _same(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def _dropout(
    mode: _Seen,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Every kind of dropout that multiplies by a mask."""
    training = kwargs.pop("train", training)
    if not training or p == 0.0:
        return func(input, p, training)
    fused = input.is_cuda and not inplace and func in (F.dropout, torch.dropout) and p < 1.0
    if fused and isinstance(mode, Recording) and input.numel():
        result, kept = torch.native_dropout(input, p, True)  # what `func` runs there, and its mask with it
        mode.draws.append(kept.to(result.dtype) / (1.0 - p))
        return result
    ones = torch.ones_like(input, requires_grad=False)
    flags = [True] if inplace else []  # a device may draw in another way in place
    return mode.seen(
        lambda: func(input, p, True, *flags),
        lambda: func(ones, p, True, *flags),
        input.shape,
        lambda mask: input.mul_(mask) if inplace else input * mask,
    )


def _alpha_dropout(
    mode: _Seen,
    func: Callable[..., Tensor],
    input: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Dropout that keeps mean and variance: what is dropped becomes -alpha, then all is scaled and moved."""
    if not training or p == 0.0:
        return func(input, p, training)
    alpha = 1.7580993408473766
    slope = 1.0 / math.sqrt((alpha * alpha * p + 1.0) * (1.0 - p)) if p < 1.0 else 0.0
    ones = torch.ones_like(input, requires_grad=False)

    def apply(kept: Tensor) -> Tensor:
        result = input * (kept * slope) + (kept - 1.0 + p) * (alpha * slope)
        return input.copy_(result) if inplace else result

    return mode.seen(
        lambda: func(input, p, True, inplace),
        lambda: (func(ones, p, True) > 0).to(input.dtype),
        input.shape,
        apply,
    )


def _fill(mode: _Seen, func: Callable[..., Tensor], self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Methods that fill a tensor with random numbers, such as `bernoulli_`."""

    def draw() -> Tensor:
        func(self, *args, **kwargs)
        return self

    filled = mode.drawn(draw, self.shape)
    return self if filled is self else self.copy_(filled)


def _fresh(mode: _Seen, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Functions that return random numbers, such as `torch.rand`."""
    if not isinstance(mode, Replaying):
        return mode.drawn(lambda: func(*args, **kwargs), torch.Size())
    states = _generator_states()
    asked = func(*args, **kwargs)  # for its shape alone
    _put_back(states)
    part = mode.drawn(lambda: asked, asked.shape)
    return part.to(asked.dtype).clone()


def _attention(
    mode: _Seen,
    func: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """F.scaled_dot_product_attention, whose dropout is otherwise drawn out of sight."""
    if dropout_p == 0.0:
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    def apply(kept: Tensor) -> Tensor:
        repeats = query.shape[-3] // key.shape[-3] if enable_gqa else 1
        keys, values = (
            each.repeat_interleave(repeats, dim=-3) if repeats > 1 else each for each in (key, value)
        )
        factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
        scores = query @ keys.transpose(-2, -1) * factor
        if is_causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return (scores.softmax(dim=-1) * kept) @ values

    shape = torch.Size((*query.shape[:-1], key.shape[-2]))
    return mode.seen(
        lambda: func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa),
        lambda: F.dropout(query.new_ones(shape), dropout_p),
        shape,
        apply,
    )


_MULTIHEAD = inspect.signature(F.multi_head_attention_forward)


def _multihead(mode: _Seen, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """F.multi_head_attention_forward of plain attention with dropout; other kinds stay out of sight."""
    bound = _MULTIHEAD.bind(*args, **kwargs)
    bound.apply_defaults()
    given = SimpleNamespace(**bound.arguments)
    unusual = given.add_zero_attn or given.use_separate_proj_weight or given.static_k is not None
    is_plain = given.bias_k is None and given.static_v is None and not unusual and given.query.dim() == 3
    if not (given.training and given.dropout_p > 0.0 and is_plain):
        return func(*args, **kwargs)

    def apply(kept: Tensor) -> Any:
        bias = given.in_proj_bias
        biases = (None, None, None) if bias is None else bias.chunk(3)
        inputs, weights = (given.query, given.key, given.value), given.in_proj_weight.chunk(3)
        q, k, v = (
            F.linear(each, part, bias).view(*each.shape[:2], given.num_heads, -1).permute(1, 2, 0, 3)
            for each, part, bias in zip(inputs, weights, biases, strict=True)
        )  # (n, heads, length, head_dim)
        mask = merged_mask(given.attn_mask, given.key_padding_mask, q)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        looks = (scores if mask is None else scores + mask).softmax(dim=-1) * kept
        mixed = (looks @ v).permute(2, 0, 1, 3).flatten(2)
        output = F.linear(mixed, given.out_proj_weight, given.out_proj_bias)
        if not given.need_weights:
            return output, None
        return output, looks.mean(dim=1) if given.average_attn_weights else looks

    length, n, _ = given.query.shape
    shape = torch.Size((n, given.num_heads, length, given.key.shape[0]))
    return mode.seen(
        lambda: func(*args, **kwargs),
        lambda: F.dropout(given.query.new_ones(shape), given.dropout_p),
        shape,
        apply,
    )


def merged_mask(attn_mask: Tensor | None, padding: Tensor | None, q: Tensor) -> Tensor | None:
    """Both masks as one that is added to scores (n, heads, target, source); true means: do not look."""
    n, heads = q.shape[:2]
    merged = None if attn_mask is None else _additive(attn_mask, q.dtype)
    if merged is not None and merged.dim() == 3:
        merged = merged.view(n, heads, *merged.shape[1:])
    if padding is not None:
        padded = _additive(padding, q.dtype).view(n, 1, 1, padding.shape[-1])
        merged = padded if merged is None else merged + padded
    return merged


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)


def _recurrent(mode: _Seen, func: Callable[..., Any], input: Tensor, state: Any, *args: Any) -> Any:
    """nn.LSTM, nn.GRU and nn.RNN: their layers one by one, with dropout between them in sight.

    Packed sequences have other arguments and stay out of sight.
    """
    if len(args) != 7 or not isinstance(args[0], (tuple, list)):
        return func(input, state, *args)
    weights, biased, num_layers, dropout, training, bidirectional, batch_first = args
    if dropout == 0.0 or not training or num_layers == 1:
        return func(input, state, *args)
    states = state if isinstance(state, (tuple, list)) else (state,)
    directions = 2 if bidirectional else 1
    size = len(weights) // num_layers
    x = input.transpose(0, 1) if batch_first else input
    ends: list[list[Tensor]] = [[] for _ in states]
    for layer in range(num_layers):
        rows = slice(layer * directions, (layer + 1) * directions)
        own = tuple(each[rows] for each in states)
        x, *found = func(
            x,
            own if isinstance(state, (tuple, list)) else own[0],
            weights[layer * size : (layer + 1) * size],
            biased,
            1,
            0.0,
            training,
            bidirectional,
            False,
        )
        for kept, end in zip(ends, found, strict=True):
            kept.append(end)
        if layer + 1 < num_layers:
            x = _dropout(mode, F.dropout, x, dropout)
    return (x.transpose(0, 1) if batch_first else x, *(torch.cat(kept) for kept in ends))


def _gumbel(
    mode: _Seen,
    func: Callable[..., Tensor],
    logits: Tensor,
    tau: float = 1.0,
    hard: bool = False,
    eps: float = 1e-10,
    dim: int = -1,
) -> Tensor:
    """F.gumbel_softmax."""

    def apply(waits: Tensor) -> Tensor:
        soft = ((logits - waits.log()) / tau).softmax(dim)
        if not hard:
            return soft
        winner = torch.zeros_like(soft).scatter_(dim, soft.argmax(dim, keepdim=True), 1.0)
        return winner - soft.detach() + soft

    blank = torch.empty_like(logits, memory_format=torch.legacy_contiguous_format, requires_grad=False)
    return mode.seen(
        lambda: func(logits, tau, hard, eps, dim), lambda: blank.exponential_().clone(), logits.shape, apply
    )


def _rrelu(
    mode: _Seen,
    func: Callable[..., Tensor],
    input: Tensor,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """F.rrelu, whose slopes below zero are random in training."""
    if not training:
        return func(input, lower, upper, False, inplace)
    below = torch.full_like(input, -1.0, requires_grad=False)

    def apply(slopes: Tensor) -> Tensor:
        result = torch.where(input < 0, input * slopes, input)
        return input.copy_(result) if inplace else result

    return mode.seen(
        lambda: func(input, lower, upper, True, inplace),
        lambda: -func(below, lower, upper, True),
        input.shape,
        apply,
    )


_FILLS = (
    "bernoulli_",
    "uniform_",
    "normal_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "cauchy_",
    "random_",
)
_FRESH = (
    torch.rand,
    torch.randn,
    torch.randint,
    torch.randperm,
    torch.rand_like,
    torch.randn_like,
    torch.randint_like,
    torch.bernoulli,
    torch.normal,
    torch.multinomial,
    torch.poisson,
    Tensor.bernoulli,
    Tensor.multinomial,
)
_SEEN: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.dropout), _dropout),
    **dict.fromkeys((F.alpha_dropout, F.feature_alpha_dropout), _alpha_dropout),
    **dict.fromkeys((getattr(Tensor, name) for name in _FILLS), _fill),
    **dict.fromkeys(_FRESH, _fresh),
    **dict.fromkeys((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu), _recurrent),
    F.scaled_dot_product_attention: _attention,
    F.gumbel_softmax: _gumbel,
    F.rrelu: _rrelu,
    F.multi_head_attention_forward: _multihead,
}
