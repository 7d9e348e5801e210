# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose steps are private: it replaces gradients by a noisy sum of clipped ones, then steps."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ggdp.accounting import Accountant
from ggdp.errors import BudgetExceededError, NotPoissonError, OtherProcessError, ParameterError
from ggdp.training.clipping import Clipping, ExampleGradients
from ggdp.training.clipping.call import Weighed
from ggdp.training.plan import Plan
from ggdp.training.poisson_batches import Part, StepClock
from ggdp.training.process_group import ProcessGroup
from ggdp.training.randomness import Randomness
from ggdp.training.sharding import Sharding, is_sharded, local_part

Hook = Callable[..., Any]

_MOST_COUNTS = 2  # numbers that processes tell each other before a step
_FEW = 1 << 16  # numbers; on a CPU, operations on fewer than these cost more than their arithmetic
_LARGEST = 1e18  # the square of a larger parameter, and so most gradients, overflow in float32


class PrivateOptimizer(Optimizer):
    """An optimizer whose steps are private. It wraps any other one, the inner optimizer.

    Schedulers, `zero_grad`, `state_dict` and step hooks work as on the inner one.

    `step` does, for the part of a logical batch that the loader handed out last:

        sum += per-example gradients, each scaled down to at most clip_norm in the l_p norm

    and, when that part was the last one, in this order: make sure that the inner optimizer will move the
    parameters that were clipped and no others; record the step in the ledger, or refuse it; add noise to the
    sum, once over all processes; divide by the expected batch size, which is public; let the inner optimizer
    step. `.grad` holds the noisy mean afterwards and nothing else, ever.

    Sums and noise are in float32 at least (in float64 for float64 parameters), whatever the dtype of the
    parameters; the noisy mean is rounded to that dtype last.

    Attributes:
        steps: logical steps that the parameters hold.
        num_zeroed: examples left out so far because their gradients were NaN or infinite, over all processes.
            It is data, computed without noise: look at it to find a fault, and do not publish it.
        is_between_steps: False while a recorded step is being released, and after one that was cut off.
        before_release: called before a step is recorded; what it raises stops the step.

    Guarantees:
        * The parameters change only by post-processing of releases that the ledger has recorded first.
        * When `step` raises, nothing was released: parameters and optimizer state are as before it. (What the
          inner optimizer itself raises comes after the release, which is recorded.)
        * With several processes, an error in one of them is raised in all, before anything is recorded.
    """

    def __init__(
        self,
        inner: Optimizer,
        model: nn.Module,
        gradients: ExampleGradients,
        plan: Plan,
        clipping: Clipping,
        clock: StepClock,
        accountant: Accountant,
        randomness: Randomness,
        group: ProcessGroup,
        sharding: Sharding | None = None,
    ) -> None:
        # Not Optimizer.__init__: parameter groups, state and defaults are the inner optimizer's own.
        self.inner = inner
        self.plan = plan
        self.steps = self.num_zeroed = 0
        self.is_between_steps = True
        self.before_release: Callable[[], None] | None = None
        self._model, self._gradients, self._clipping, self._clock = model, gradients, clipping, clock
        self._accountant, self._randomness, self._group = accountant, randomness, group
        self._step, self._sharding = plan.step, sharding
        names = {parameter: name for name, parameter in model.named_parameters()}
        self._noised: dict[Tensor, tuple[str, torch.Size]] = {
            parameter: (names[parameter], parameter.shape) for parameter in gradients.parameters
        }
        self._are_few = sharding is None and _are_few(gradients.parameters)
        self._sums: list[Tensor] | None = None
        self._zeroed = 0  # examples of the present logical batch
        self._part = Part(batch=0, index=0, size=0, is_last=True)  # the present one, or the last
        self._charged = 0  # the last draw of the sampler that the ledger holds
        self._next = (0, 0)  # batch and index of the part that continues the sum
        self._approved: list[Any] = []  # see `_looked_at`
        self._holds: list[Tensor] = []
        self._size: _Size | None = None  # of the parameters after the last step, on a GPU
        self._ended: str | None = None  # why, after an error that all processes have heard of
        clock.stepper = self

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The inner optimizer's."""
        return self.inner.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The inner optimizer's."""
        return self.inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The inner optimizer's."""
        return self.inner.defaults

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's."""
        return self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the inner optimizer's state."""
        self.inner.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the noisy mean of the last step; the parts of a batch summed so far are kept."""
        self.inner.zero_grad(set_to_none=set_to_none)

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Have `hook(self, args, kwargs)` called once per logical step, when `.grad` is the noisy mean."""
        return self.inner.register_step_pre_hook(lambda _, *rest: hook(self, *rest))

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Have `hook(self, args, kwargs)` called once per logical step, after the parameters have moved."""
        return self.inner.register_step_post_hook(lambda _, *rest: hook(self, *rest))

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Have `hook(self)` called before `state_dict`."""
        return self.inner.register_state_dict_pre_hook(lambda _: hook(self), prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Have `hook(self, state_dict)` called after `state_dict`."""
        return self.inner.register_state_dict_post_hook(lambda _, state: hook(self, state), prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Have `hook(self, state_dict)` called before `load_state_dict`."""
        return self.inner.register_load_state_dict_pre_hook(lambda _, state: hook(self, state), prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Have `hook(self)` called after `load_state_dict`."""
        return self.inner.register_load_state_dict_post_hook(lambda _: hook(self), prepend)

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Refuse: the ledger counts with the parameters there were at the start."""
        raise ValueError(
            "parameters cannot be added to a private optimizer, whose plan fixes their number; call "
            "make_private again with all of them"
        )

    @property
    def _step_supports_amp_scaling(self) -> NoReturn:
        """What `torch.amp.GradScaler.step` asks an optimizer first: refuse the scaler."""
        raise TypeError(
            "a torch.amp.GradScaler cannot step a private optimizer: gradients would be clipped at their "
            "scaled size, and the scale itself follows the raw gradients, which no noise hides; use bfloat16 "
            "autocast or float32, which need no scaler, and call optimizer.step()"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a private optimizer is not copied or pickled: a copy would step on noise and a ledger that are "
            "not its own; keep optimizer.state_dict(), or copy the model and call make_private on it"
        )

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self.inner!r})"

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take in the batch handed out last and, if it ends a logical step, release and step.

        Raises:
            BudgetExceededError: the budget does not allow the step.
            NonFiniteGradientError: an example's gradient is NaN or infinite and `make_private` was given
                non_finite="refuse". That it is raised depends on the data.
            NotPoissonError: no batch of the private loader is at hand, or a part of this one was left out.
            ParameterError: the inner optimizer would move a parameter that was not clipped and noised, or a
                parameter is NaN, infinite or above 1e18.
            OtherProcessError: another process of the run could not go on.
        """
        if closure is not None:
            raise ValueError("closure must be None: each evaluation of it would be a release of its own")
        self._check_not_ended()
        weighed = None
        try:
            with self._gradients.whole_model(needed=self._gradients.checks_next):
                part = self._part = self._clock.take()
                weighed = self._take_in(part)
        except Exception as error:
            self._gradients.discard()
            self._sums = None
            self._tell_others(error)
            raise
        if self._sharding is not None:
            self._add_up(part, weighed)
        if part.is_last:
            self._release()

    def step_without_examples(self) -> None:
        """Take the step of an empty batch, as the loader asks: noise alone is released and recorded."""
        self.step()

    def tell_others(self, error: Exception) -> None:
        """End the run in all processes because this one cannot go on; does nothing where there is one.

        Call it only where the other processes go on to a step. The processes of a sharded model are not
        told: they wait in the model for this one, and end when `torchrun` ends them.
        """
        if self._sharding is None:
            self._tell_others(error)

    def _tell_others(self, error: Exception) -> None:
        if self._group.world_size > 1 and self._ended is None:
            self._together(error)

    def _take_in(self, part: Part) -> Weighed | None:
        if self._sharding is None and is_sharded(next(self._model.parameters())):
            raise _changed("the model was sharded")
        if part.is_first:
            self._sums, self._zeroed = None, 0  # whatever an unfinished logical step has left
        elif (part.batch, part.index) != self._next:
            # Without the part that was left out this is no Poisson batch, and one example could remove it.
            raise NotPoissonError(
                f"part {part.index} of a batch must follow part {part.index - 1}, which was left out or "
                "refused; nothing of this batch is released, go on with the next one"
            )
        self._next = (-1, 0)  # until this part is taken in
        weighed = self._add(part)
        self._next = (part.batch, part.index + 1)
        return weighed

    def _add(self, part: Part) -> Weighed | None:
        """Take the examples of a part in; of a sharded model find their factors, which `_add_up` takes."""
        if part.size == 0:
            self._gradients.discard()
            return None
        if self._sharding is not None:
            weighed = self._gradients.weighed(self._clipping)
            _check_seen(part, 0 if weighed is None else len(weighed.norms))
            self._zeroed += 0 if weighed is None else weighed.num_zeroed
            return weighed
        clipped = self._gradients.clipped_sum(self._clipping)
        _check_seen(part, clipped.num_examples)
        self._zeroed += clipped.num_zeroed
        sums = [tensor.to(_precision(tensor)) for tensor in clipped.sums]
        if self._sums is None:
            self._sums = sums
        else:
            torch._foreach_add_(self._sums, sums)
        return None

    def _add_up(self, part: Part, weighed: Weighed | None) -> None:
        """Add the sums of a part up over the processes of a sharded model; this one keeps its own rows."""
        if part.size == 0 and not part.filler:
            return  # the batch is empty in all of them
        shown = weighed is not None and len(weighed.norms) > 1
        (num_shown,) = self._together(None, int(shown))
        self._gradients.end_step(num_shown > 0)
        parameters, sharding = self._gradients.parameters, cast(Sharding, self._sharding)
        count = len(parameters)
        sums = weighed.sums(count) if weighed is not None else itertools.repeat(None, count)
        found = sharding.add_up(sums, _precision(parameters[0]))
        if self._sums is None:
            self._sums = found
        else:
            torch._foreach_add_(self._sums, found)

    def _release(self) -> None:
        plan, parameters = self.plan, self._gradients.parameters
        sums, self._sums = self._sums, None
        self._agree_to_release()
        if not self._is_charged and plan.max_epsilon is None:
            self._accountant.step(self._step)
        elif not self._is_charged:
            self._accountant.spend(self._step)
        self._charged = self._part.draw
        self.is_between_steps = False
        if self._sharding is not None:
            sums = sums if sums is not None else self._sharding.zeros(_precision(parameters[0]))
            self._randomness.add_noise_to_pieces_(self._sharding.pieces(sums), plan.noise)
            torch._foreach_div_(sums, plan.expected_batch_size)
        else:
            if sums is None:
                sums = [
                    torch.zeros_like(each, dtype=_precision(each), requires_grad=False) for each in parameters
                ]
            if self._group.is_leader:
                self._randomness.add_noise_(sums, plan.noise)
            self._group.sum_(sums)
            torch._foreach_div_(sums, plan.expected_batch_size)
        for number, (parameter, mean) in enumerate(zip(parameters, sums, strict=True)):
            mean = mean.to(parameter.dtype)
            parameter.grad = mean if self._sharding is None else self._sharding.gradient(number, mean)
        self.inner.step()
        if parameters[0].is_cuda:  # measured now, and read before the next step without a wait
            self._size = _Size.of(parameters, self._versions)
        self.steps += 1
        self.is_between_steps = True

    def _agree_to_release(self) -> None:
        """Raise in all processes unless every one of them can record and release this step."""
        error, fits = None, True
        try:
            self._check_parameters()
            free = self.plan.max_epsilon is None or self._is_charged
            fits = free or self._accountant.can_afford(self._step)
            if fits and self.before_release is not None:
                self.before_release()
        except Exception as found:
            error = found
        too_much, zeroed = self._together(error, int(not fits), self._zeroed)
        if too_much and self._accountant.budget is not None:
            raise BudgetExceededError(self._step, 1, self._accountant.budget)
        self.num_zeroed += zeroed

    def _together(self, error: Exception | None, *counts: int) -> tuple[int, ...]:
        """The one message between processes before a step; it has the same length whatever is told."""
        told = (*counts, *(0,) * (_MOST_COUNTS - len(counts)))
        try:
            return self._group.together(error, told, self._gradients.parameters[0].device)[: len(counts)]
        except Exception as ending:
            if self._group.world_size > 1:
                self._ended = str(ending)
            raise

    def _check_not_ended(self) -> None:
        if self._ended is not None:
            raise OtherProcessError(f"the run has ended in all processes, start it again: {self._ended}")

    @property
    def _is_charged(self) -> bool:
        """Whether the ledger holds the present batch already, with the epoch that it was drawn with."""
        return 0 < self._part.draw == self._charged

    @property
    def draw(self) -> int:
        """Which draw of the sampler the last batch belongs to."""
        return self._part.draw

    def draws_ahead(self, steps: int) -> int:
        """How many draws the ledger may get by so many steps, the one that is being taken included."""
        after = max(steps - 1 - self._part.left, 0) if steps else 0
        return int(steps > 0 and not self._is_charged) + self.plan.draws(after)

    @property
    def _versions(self) -> list[int]:
        """They count the changes in place of every parameter."""
        return [local_part(parameter)._version for parameter in self._noised]

    def _check_parameters(self) -> None:
        """Refuse if the inner optimizer would move anything but what was clipped, or the model is another."""
        found = self._looked_at()
        if found != self._approved:
            self._check_anew()
            self._approved = found
        self._check_size()

    def _looked_at(self) -> list[Any]:
        """All that `_check_anew` looks at, in a form that is quick to compare with what it last approved.

        Tensors are told apart by `id`. Those approved are held by `_noised` and `_holds`, so that no other
        tensor can get the number of one of them.
        """
        found: list[Any] = []
        waiting, seen = [self._model], {self._model}
        while waiting:
            module = waiting.pop()
            for parameter in module._parameters.values():
                if parameter is not None:
                    found += (id(parameter), parameter.requires_grad, parameter.shape)
            for inner in module._modules.values():
                if inner is not None and inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
        for group in self.inner.param_groups:
            for tensor in group["params"]:
                found.append(id(tensor))
                if tensor not in self._noised:
                    found += (tensor.requires_grad, tensor.grad is None)
        return found

    def _check_anew(self) -> None:
        present = {parameter: name for name, parameter in self._model.named_parameters()}
        for parameter, (name, shape) in self._noised.items():
            if parameter not in present:
                raise _changed(f"parameter {name!r} of the model was replaced by another")
            if not parameter.requires_grad:
                raise _changed(f"parameter {name!r} was frozen")
            if parameter.shape != shape:
                raise _changed(f"parameter {name!r} had shape {tuple(shape)}, got {tuple(parameter.shape)}")
        for parameter, name in present.items():
            if parameter.requires_grad and parameter not in self._noised:
                raise _changed(f"parameter {name!r} is trainable and was not before")
        stepped = {tensor for group in self.inner.param_groups for tensor in group["params"]}
        for tensor in stepped:
            if tensor not in self._noised and (tensor.requires_grad or tensor.grad is not None):
                name = present.get(tensor, f"of shape {tuple(tensor.shape)}")
                raise _changed(f"the optimizer would move parameter {name!r}, which is not clipped")
        for parameter, (name, _) in self._noised.items():
            if parameter not in stepped:
                raise _changed(f"parameter {name!r} has left the optimizer")
        self._holds = [*present, *stepped]

    def _check_size(self) -> None:
        """Parameters are public: that they have become useless may be said, and no step would mend it."""
        if self._are_few:
            whole = torch.cat([each.detach().reshape(-1) for each in self._gradients.parameters])
            total = torch.linalg.vector_norm(whole, torch.inf).item()
        else:
            size = self._size
            if size is None or size.versions != self._versions:
                size = _Size.of(list(self._noised), self._versions)
            total = size.total
        if not total <= _LARGEST:
            for parameter, (name, _) in self._noised.items():
                own = local_part(parameter.detach())
                if own.numel() and not own.abs().max().item() <= _LARGEST:
                    raise ParameterError(
                        f"parameter {name!r} is NaN or infinite, or so large (above {_LARGEST:g}) that "
                        "gradients are, and further steps would spend privacy for nothing; start again with "
                        "a lower learning rate, a larger rate, or parameters in float32"
                    )


class _Size:
    """The sum of the largest entries of all parameters, on its way from the device.

    Attributes:
        versions: Of the parameters that were measured.
    """

    def __init__(self, total: Tensor, arrived: torch.cuda.Event | None, versions: list[int]) -> None:
        self._total, self._arrived, self.versions = total, arrived, versions

    @classmethod
    def of(cls, parameters: Sequence[Tensor], versions: list[int]) -> "_Size":
        """Measure parameters; on a GPU without waiting for it."""
        with torch.no_grad():
            own = [local_part(each) for each in parameters]
            largest = torch._foreach_norm([each for each in own if each.numel()], torch.inf)
            if not largest:  # a process may hold no row of a small sharded model
                return cls(torch.zeros(()), None, versions)
            total = torch.stack([each.to(largest[0].device, torch.float32) for each in largest]).sum()
        if not total.is_cuda:
            return cls(total, None, versions)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        here = torch.empty((), pin_memory=True).copy_(total, non_blocking=True)
        arrived.record(torch.cuda.current_stream(total.device))
        return cls(here, arrived, versions)

    @property
    def total(self) -> float:
        """It."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._total.item()


def _check_seen(part: Part, num_examples: int) -> None:
    if num_examples != part.size:
        raise ValueError(
            f"the loader handed out {part.size} examples and the model saw {num_examples} in its "
            "last backward pass; give the model each batch whole, once"
        )


def _are_few(tensors: Sequence[Tensor]) -> bool:
    """Whether operations on each of them cost more than one on all of them side by side."""
    return all(each.is_cpu for each in tensors) and 0 < sum(each.numel() for each in tensors) <= _FEW


def _precision(tensor: Tensor) -> torch.dtype:
    """In which sums over a batch and their noise are held."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _changed(what: str) -> ParameterError:
    return ParameterError(
        f"{what} since make_private; nothing was released: make the change before make_private, or call "
        "detach() and make_private again"
    )
