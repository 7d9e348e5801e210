# SPDX-License-Identifier: Apache-2.0
"""nn.LSTM, nn.GRU and nn.RNN: each direction of each layer is two linear layers on sequences, of inputs and
of states.

They are computed over a whole sequence, forward and backward by hand, so that gate cotangents are at hand.
All tensors have time first, (T, n, ...). The input is projected for all steps at once; what a step's
derivative needs and the recurrence does not touch is computed for all steps at once too, so that a step of
backward is a few products and one matrix product. The cotangents of input and recurrent pre-activations are
handed to `note`; weights get no gradient here.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import PackedSequence

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.linear import SequenceCall, Slots
from ggdp.training.clipping.site import AbstractSite

Note = Callable[[Tensor, Tensor, Tensor, Tensor], None]
"""Takes inputs (T, n, I), their gates' cotangents, previous states (T, n, H), their gates' cotangents."""


def _projected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    gates = rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())
    return gates.view(*x.shape[:2], len(weight))


def _input_cotangent(ctx: Any, gates: Tensor, weight: Tensor) -> Tensor | None:
    return gates @ weight if ctx.needs_input_grad[0] else None


class LSTM(torch.autograd.Function):
    """The cell of nn.LSTM.

    i, f, o = sigmoid, g = tanh of W_ih x_t + W_hh h_{t-1} + b; c_t = f c_{t-1} + i g, h_t = o tanh c_t.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        state: Tensor,
        cell: Tensor,
        weights: tuple[Tensor, Tensor],
        biases: tuple[Tensor, Tensor] | None,
        anchor: Tensor,
        note: Note,
    ) -> tuple[Tensor, Tensor]:
        """The states after every step, and the last cell."""
        w_ih, w_hh = weights
        gates = _projected(x, w_ih, None if biases is None else biases[0] + biases[1])
        length, n, size = len(x), len(state), w_hh.shape[1]
        states, cells = (start.new_empty(length + 1, n, size) for start in (state, cell))
        states[0], cells[0] = state, cell
        recurrent, squashed = w_hh.t(), state.new_empty(length, n, size)
        halves = gates.view(length, n, 2, 2 * size)
        four = gates.view(length, n, 4, size)
        i, f, g, o = (four[:, :, k].unbind(0) for k in range(4))
        h, c, s = states.unbind(0), cells.unbind(0), squashed.unbind(0)
        for t, (pre, both) in enumerate(zip(gates.unbind(0), halves[:, :, 0].unbind(0), strict=True)):
            pre.addmm_(h[t], recurrent)
            both.sigmoid_()
            g[t].tanh_()
            o[t].sigmoid_()
            torch.mul(f[t], c[t], out=c[t + 1])
            c[t + 1].addcmul_(i[t], g[t])
            torch.tanh(c[t + 1], out=s[t])
            torch.mul(o[t], s[t], out=h[t + 1])
        ctx.save_for_backward(x, gates, states, cells, squashed, w_ih, w_hh)
        ctx.note = note
        return states[1:].clone(), cells[-1].clone()  # a view of what is saved would keep the graph alive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states_cotangent: Tensor, cell_cotangent: Tensor) -> tuple[Tensor | None, ...]:
        """Cotangents of input and initial states."""
        x, gates, states, cells, squashed, w_ih, w_hh = ctx.saved_tensors
        length, n, size = len(x), states.shape[1], states.shape[2]
        i, f, g, o = gates.view(length, n, 4, size).unbind(2)
        one = gates.new_ones(())
        to_cell = torch.addcmul(one, squashed, squashed, value=-1.0).mul_(o)
        cotangents = torch.addcmul(gates, gates, gates, value=-1.0)  # the derivative s - s^2 of a sigmoid
        rates = cotangents.view(length, n, 4, size)
        torch.addcmul(one, g, g, value=-1.0, out=rates[:, :, 2])
        for place, factor in enumerate((g, cells[:-1], i, squashed)):
            rates[:, :, place].mul_(factor)
        inner, outer = rates[:, :, :3].unbind(0), rates[:, :, 3].unbind(0)
        every, forget, through = cotangents.unbind(0), f.unbind(0), to_cell.unbind(0)
        incoming, dc, dh = states_cotangent.unbind(0), cell_cotangent.clone(), None
        for t in reversed(range(length)):
            dh = incoming[t] if dh is None else torch.addmm(incoming[t], every[t + 1], w_hh)
            dc.addcmul_(dh, through[t])
            inner[t].mul_(dc.unsqueeze(1))
            outer[t].mul_(dh)
            dc.mul_(forget[t])
        ctx.note(x, cotangents, states[:-1], cotangents)
        first = every[0] @ w_hh if length else None
        return _input_cotangent(ctx, cotangents, w_ih), first, dc, None, None, None, None


class GRU(torch.autograd.Function):
    """The cell of nn.GRU.

    r, z = sigmoid(...), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h_t = n + z (h_{t-1} - n).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        state: Tensor,
        weights: tuple[Tensor, Tensor],
        biases: tuple[Tensor, Tensor] | None,
        anchor: Tensor,
        note: Note,
    ) -> Tensor:
        """The states after every step."""
        w_ih, w_hh = weights
        gates = _projected(x, w_ih, None if biases is None else biases[0])
        length, n, size = len(x), len(state), w_hh.shape[1]
        states, inner = state.new_empty(length + 1, n, size), state.new_empty(length, n, size)
        states[0] = state
        bias = state.new_zeros(3 * size) if biases is None else biases[1]
        for t in range(length):
            recurrent = torch.addmm(bias, states[t], w_hh.t())
            both = gates[t, :, : 2 * size]
            both.add_(recurrent[:, : 2 * size]).sigmoid_()
            inner[t] = recurrent[:, 2 * size :]
            new = gates[t, :, 2 * size :]
            new.addcmul_(both[:, :size], inner[t]).tanh_()
            torch.lerp(new, states[t], both[:, size:], out=states[t + 1])
        ctx.save_for_backward(x, gates, inner, states, w_ih, w_hh)
        ctx.note = note
        return states[1:].clone()  # a view of what is saved would keep the graph alive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states_cotangent: Tensor) -> tuple[Tensor | None, ...]:
        """Cotangents of input and initial state."""
        x, gates, inner, states, w_ih, w_hh = ctx.saved_tensors
        length, n, size = len(x), states.shape[1], states.shape[2]
        r, z, new = gates.view(length, n, 3, size).unbind(2)
        recurrent = torch.empty_like(gates)  # of W_hh h + b_hh
        rates = recurrent.view(length, n, 3, size)
        to_new = (1.0 - z) * (1.0 - new.square())
        torch.mul(to_new, inner, out=rates[:, :, 0]).mul_(r).mul_(1.0 - r)
        torch.mul(states[:-1] - new, z, out=rates[:, :, 1]).mul_(1.0 - z)
        torch.mul(to_new, r, out=rates[:, :, 2])
        dh = torch.zeros_like(states[0])
        for t in reversed(range(length)):
            dh = dh + states_cotangent[t]
            rates[t].mul_(dh.unsqueeze(1))
            to_new[t].mul_(dh)
            dh = torch.addmm(dh * z[t], recurrent[t], w_hh)
        inputs = torch.cat([recurrent[:, :, : 2 * size], to_new], dim=2)  # of W_ih x + b_ih
        ctx.note(x, inputs, states[:-1], recurrent)
        return _input_cotangent(ctx, inputs, w_ih), dh, None, None, None, None


class Elman(torch.autograd.Function):
    """The cell of nn.RNN: h_t = tanh or relu of W_ih x_t + b_ih + W_hh h_{t-1} + b_hh."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        state: Tensor,
        weights: tuple[Tensor, Tensor],
        biases: tuple[Tensor, Tensor] | None,
        nonlinearity: str,
        anchor: Tensor,
        note: Note,
    ) -> Tensor:
        """The states after every step."""
        w_ih, w_hh = weights
        states = torch.cat(
            [state.unsqueeze(0), _projected(x, w_ih, None if biases is None else biases[0] + biases[1])]
        )
        for t in range(len(x)):
            states[t + 1].addmm_(states[t], w_hh.t())
            states[t + 1].tanh_() if nonlinearity == "tanh" else states[t + 1].relu_()
        ctx.save_for_backward(x, states, w_ih, w_hh)
        ctx.note, ctx.nonlinearity = note, nonlinearity
        return states[1:].clone()  # a view of what is saved would keep the graph alive

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, states_cotangent: Tensor) -> tuple[Tensor | None, ...]:
        """Cotangents of input and initial state."""
        x, states, w_ih, w_hh = ctx.saved_tensors
        after = states[1:]
        gates = 1.0 - after.square() if ctx.nonlinearity == "tanh" else (after > 0).to(after.dtype)
        dh = torch.zeros_like(states[0])
        for t in reversed(range(len(x))):
            gates[t].mul_(dh + states_cotangent[t])
            dh = gates[t] @ w_hh
        ctx.note(x, gates, states[:-1], gates)
        return _input_cotangent(ctx, gates, w_ih), dh, None, None, None, None, None


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
