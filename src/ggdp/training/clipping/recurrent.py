# SPDX-License-Identifier: Apache-2.0
"""nn.LSTM, nn.GRU and nn.RNN: each direction of each layer is two linear layers on sequences, of inputs and
of states.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.linear import SequenceCall, Slots
from ggdp.training.clipping.recurrent_cells import GRU, LSTM, Elman, Note
from ggdp.training.clipping.site import AbstractSite

State = Tensor | tuple[Tensor, Tensor]


class RecurrentSite(AbstractSite):
    """Any number of layers, one or two directions, dropout between layers; packed sequences are refused."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        super().__init__(module, *args, **kwargs)
        self._rnn = cast(nn.RNNBase, module)
        self._directions = ("", "_reverse") if self._rnn.bidirectional else ("",)

    @classmethod
    def accepts(cls, module: nn.Module) -> bool:
        """Not LSTMs that project their state, nor weights that are computed by hooks."""
        rnn = cast(nn.RNNBase, module)
        names = {name for layer in rnn._all_weights for name in layer}
        return rnn.proj_size == 0 and set(module._parameters) == names

    def recorded(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, State]:
        """See `AbstractSite`."""
        rnn = self._rnn
        if isinstance(input, PackedSequence) or input.dim() != 3:
            kind = "a packed sequence" if isinstance(input, PackedSequence) else f"{input.dim()} dimensions"
            raise UnsupportedModelError(
                f"module {self.shown} was called with {kind}; give it padded sequences of three dimensions"
            )
        if torch.is_autocast_enabled(
            input.device.type
        ):  # the cells do their own arithmetic, in one precision
            with torch.autocast(input.device.type, enabled=False):
                return self.recorded(input.to(self.dtype), hx)
        x = input.transpose(0, 1) if rnn.batch_first else input
        self.check_examples(x.shape[1])
        start = self._initial(x, hx)
        last: list[list[Tensor]] = [[] for _ in start]
        for layer in range(rnn.num_layers):
            outputs = []
            for number, direction in enumerate(self._directions):
                at = layer * len(self._directions) + number
                states, *ends = self._swept(x, f"_l{layer}{direction}", [each[at] for each in start])
                outputs.append(states)
                for kept, end in zip(last, ends, strict=True):
                    kept.append(end)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)
            if rnn.dropout and rnn.training and layer + 1 < rnn.num_layers:
                x = F.dropout(x, rnn.dropout, training=True)
        ends = [torch.stack(kept) for kept in last]
        output = x.transpose(0, 1) if rnn.batch_first else x
        return output, (ends[0], ends[1]) if len(ends) == 2 else ends[0]

    def _initial(self, x: Tensor, hx: State | None) -> list[Tensor]:
        """Initial states (and cells), (layers * directions, n, H) each; zeros if the caller has none."""
        if hx is not None:
            return list(hx) if isinstance(hx, tuple) else [hx]
        rnn = self._rnn
        zeros = x.new_zeros(rnn.num_layers * len(self._directions), x.shape[1], rnn.hidden_size)
        return [zeros, zeros] if isinstance(rnn, nn.LSTM) else [zeros]

    def _swept(self, x: Tensor, suffix: str, start: list[Tensor]) -> list[Tensor]:
        """States (T, n, H) of one direction of one layer, its last state and, in an LSTM, its last cell."""
        backwards = suffix.endswith("_reverse")
        if backwards:
            x = x.flip(0)
        weights = cast(
            tuple[Tensor, Tensor], tuple(self.parameter(f"weight_{k}{suffix}") for k in ("ih", "hh"))
        )
        biases = (
            cast(tuple[Tensor, Tensor], tuple(self.parameter(f"bias_{k}{suffix}") for k in ("ih", "hh")))
            if self._rnn.bias
            else None
        )
        note, anchor = self._note(suffix), self.tape.anchor
        cells: list[Tensor] = []
        if isinstance(self._rnn, nn.LSTM):
            states, cell = _apply(LSTM, x, *start, weights, biases, anchor, note)
            cells = [cell]
        elif isinstance(self._rnn, nn.GRU):
            states = _apply(GRU, x, *start, weights, biases, anchor, note)
        else:
            kind = cast(nn.RNN, self._rnn).nonlinearity
            states = _apply(Elman, x, *start, weights, biases, kind, anchor, note)
        return [states.flip(0) if backwards else states, states[-1], *cells]

    def _note(self, suffix: str) -> Note:
        inputs, recurrent = (
            Slots(self.slots.get(f"weight_{kind}{suffix}"), self.slots.get(f"bias_{kind}{suffix}"))
            for kind in ("ih", "hh")
        )
        current, dtype = self.tape.current, self.dtype

        def note(x: Tensor, x_cotangent: Tensor, states: Tensor, state_cotangent: Tensor) -> None:
            if not self.is_noting():
                return
            x, x_cotangent, states, state_cotangent = (
                each.to(dtype) for each in (x, x_cotangent, states, state_cotangent)
            )
            pairs = ((inputs, x, x_cotangent), (recurrent, states, state_cotangent))
            current.calls.extend(
                SequenceCall(slots, activation.transpose(0, 1), cotangent.transpose(0, 1))
                for slots, activation, cotangent in pairs
                if slots.present
            )

        return note


def _apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    return function.apply(*arguments)  # type: ignore[no-untyped-call]
