# SPDX-License-Identifier: Apache-2.0
"""The clipping rule of embeddings, of which an example touches the rows of its own tokens alone."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.call import AbstractCall, Matrices, MatrixTerms
from ggdp.training.clipping.norms import row_norms
from ggdp.training.clipping.site import AbstractSite


class EmbeddingSite(AbstractSite):
    """nn.Embedding, dense or sparse; the padding row gets no gradient."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        embedding = cast(nn.Embedding, module)
        self._padding = embedding.padding_idx
        self._rows = embedding.num_embeddings

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Not a row's gradient divided by its frequency in the batch, nor weights that a call changes."""
        embedding = cast(nn.Embedding, module)
        return (
            set(module._parameters) == {"weight"}
            and embedding.max_norm is None
            and not embedding.scale_grad_by_freq
        )

    def recorded(self, input: Tensor) -> Tensor:
        """See `AbstractSite`; one row shared by all examples (positions) is given to each of them."""
        expected = self.tape.current.num_examples
        expected = None if expected is None else expected * self.tape.views
        if input.dim() == 1 and len(input) > 1 and bool((input.diff() == 1).all()):
            # As long as the batch by chance, positions would pass for examples, and none would be clipped.
            raise UnsupportedModelError(
                f"module {self.shown} was called with consecutive numbers of one dimension, which look like "
                "positions that all examples share; give them the shape (1, length)"
            )
        if input.dim() > 1 and input.shape[0] == 1 and self.batch_first and expected is not None:
            input = input.expand(expected, *input.shape[1:])
        swapped = not self.batch_first and input.dim() > 1
        self.check_examples(input.shape[1 if swapped else 0])
        output = F.embedding(input, self.parameter("weight"))  # type: ignore[arg-type]
        note = partial(_embedding_call, self.slots["weight"], self._rows, self._padding, swapped)
        return self.watch(output, note, input, dim=1 if swapped else 0)


class OwnEmbeddingSite(EmbeddingSite):
    """A subclass of nn.Embedding with a forward of its own, which looks rows up by F.embedding.

    Scaled embeddings, and positions with an offset, are such. Any other use of the weight is noticed as that
    of a stray parameter.
    """

    def recorded(self, *args: Any, **kwargs: Any) -> Any:
        """See `AbstractSite`."""
        with _LookUps(super().recorded, self.module._parameters["weight"]):
            return self._plain(*args, **kwargs)


class _LookUps(TorchFunctionMode):
    """A context in which F.embedding of one weight is done by another function."""

    def __init__(self, look_up: Callable[[Tensor], Tensor], weight: Any) -> None:
        super().__init__()
        self._look_up, self._weight = look_up, weight

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.embedding and (args[1] if len(args) > 1 else kwargs.get("weight")) is self._weight:
            return self._look_up(args[0] if args else kwargs["input"])
        return func(*args, **kwargs)


def _embedding_call(
    slot: int, num_rows: int, padding: int | None, swapped: bool, tokens: Tensor, cotangent: Tensor
) -> "EmbeddingCall":
    if swapped:
        tokens, cotangent = tokens.transpose(0, 1), cotangent.transpose(0, 1)
    count = tokens.shape[1:].numel()
    tokens = tokens.reshape(len(tokens), count)
    cotangent = cotangent.reshape(len(tokens), count, cotangent.shape[-1])
    if padding is not None:
        cotangent = cotangent.masked_fill((tokens == padding).unsqueeze(2), 0.0)
    return EmbeddingCall(slot, num_rows, tokens, cotangent)


class EmbeddingCall(AbstractCall):
    """Cotangents (n, T, d) of n examples' T tokens: those of equal tokens of one example add up."""

    def __init__(self, slot: int, num_rows: int, tokens: Tensor, cotangent: Tensor) -> None:
        self.slots = (slot,)
        self.num_examples = len(tokens)
        self._num_rows, self._tokens, self._cotangent = num_rows, tokens, cotangent

    @property
    def device(self) -> torch.device:
        """See `AbstractCall`."""
        return self._cotangent.device

    @property
    def example_bytes(self) -> int:
        """See `AbstractCall`."""
        return self._num_rows * self._cotangent.shape[-1] * self._cotangent.element_size()

    @property
    def matrix_terms(self) -> MatrixTerms:
        """See `AbstractCall`: a position adds to the row of its token."""
        return MatrixTerms(self.slots[0], self._tokens, self._cotangent)

    def closed_norms(self, p: float) -> list[Tensor]:
        """Norms of the (example, token) sums; the table as a whole is never written down."""
        n, length = self._tokens.shape
        if length == 1:
            return [row_norms(self._cotangent[:, 0], p)]
        order, place = self._tokens.sort(dim=1)
        first = torch.zeros_like(order)
        first[:, 1:] = order[:, 1:] != order[:, :-1]
        first[:, 0] = torch.arange(0, n * length, length, device=order.device)
        groups = torch.empty_like(order).scatter_(
            1, place, first.cumsum(dim=1)
        )  # each token's own, by example
        cotangent = self._cotangent.reshape(n * length, -1)
        sums = torch.zeros_like(cotangent).index_add_(0, groups.reshape(-1), cotangent)
        return [row_norms(sums.view(n, -1), p)]

    def rows(self, start: int, stop: int, into: Matrices | None = None) -> Matrices:
        """The whole table for each example, needed only where another layer shares it."""
        n = stop - start
        offsets = torch.arange(0, n * self._num_rows, self._num_rows, device=self.device)
        cotangent = self._cotangent[start:stop].flatten(0, 1)
        table = cotangent.new_zeros(n * self._num_rows, cotangent.shape[1])
        table.index_add_(0, (self._tokens[start:stop] + offsets.unsqueeze(1)).view(-1), cotangent)
        return (table.view(n, -1),)

    def shaped(self, place: int, flat: Tensor) -> Tensor:
        """See `AbstractCall`."""
        return flat.view(*flat.shape[:-1], self._num_rows, -1)

    def weighted_sum(self, weights: Tensor) -> tuple[Tensor, ...]:
        """See `AbstractCall`."""
        scaled = (self._cotangent * weights.view(-1, 1, 1)).flatten(0, 1)
        table = scaled.new_zeros(self._num_rows, scaled.shape[1])
        return (table.index_add_(0, self._tokens.reshape(-1), scaled),)

    def zero_rows(self, rows: Tensor) -> None:
        """See `AbstractCall`."""
        self._cotangent = self._cotangent.index_fill(0, rows, 0.0)

    def with_views(self, views: int) -> AbstractCall:
        """See `AbstractCall`: views are positions."""
        tokens, cotangent = (
            each.reshape(len(each) // views, -1, *each.shape[2:]) for each in (self._tokens, self._cotangent)
        )
        return EmbeddingCall(self.slots[0], self._num_rows, tokens, cotangent)
