# SPDX-License-Identifier: Apache-2.0
"""An optimizer whose steps are private: it replaces gradients by a noisy sum of clipped ones, then steps."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.optim import Optimizer

from ggdp.accounting import Accountant
from ggdp.distributions.pytorch import add_noise_
from ggdp.training.clipping import Clipping, ExampleGradients, NonFiniteGradientError
from ggdp.training.plan import Plan
from ggdp.training.poisson_batches import NotPoissonError, Part, StepClock
from ggdp.training.process_group import ProcessGroup
from ggdp.training.randomness import Randomness


class PrivateOptimizer(Optimizer):
    """Wraps any optimizer; schedulers, `zero_grad` and `state_dict` work on it as on the one inside.

    `step` does, for the part of a logical batch that the loader handed out last:

        sum += per-example gradients, each scaled down to at most clip_norm in the l_p norm

    and, when that part was the last one, in this order: record the step in the ledger, or refuse it;
    add noise to the sum, once over all processes; divide by the expected batch size, which is public; let
    the inner optimizer step. `.grad` holds the noisy mean afterwards and nothing else, ever.

    Guarantees:
        * The parameters change only by post-processing of releases that the ledger has recorded first.
        * When `step` raises, nothing was released: parameters and optimizer state are as before it.
    """

    def __init__(
        self,
        inner: Optimizer,
        gradients: ExampleGradients,
        plan: Plan,
        clipping: Clipping,
        clock: StepClock,
        accountant: Accountant,
        randomness: Randomness,
        group: ProcessGroup,
    ) -> None:
        # Not Optimizer.__init__: parameter groups, state and defaults are the inner optimizer's own.
        self.inner = inner
        self.plan = plan
        self.num_steps = 0
        self._gradients, self._clipping, self._clock = gradients, clipping, clock
        self._accountant, self._randomness, self._group = accountant, randomness, group
        self._step = plan.step
        self._sums: list[torch.Tensor] | None = None
        self._next = (0, 0)  # batch and index of the part that continues the sum

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

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Refuse: the ledger counts with the parameters there were at the start."""
        raise ValueError(
            "parameters cannot be added to a private optimizer, whose plan fixes their number; call "
            "make_private again with all of them"
        )

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self.inner!r})"

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take in the batch handed out last and, if it ends a logical step, release and step.

        Raises:
            BudgetExceededError: the budget does not allow the step.
            NonFiniteGradientError: an example's gradient is NaN or infinite.
            NotPoissonError: no batch of the private loader is at hand, or a part of this one was left out.
        """
        if closure is not None:
            raise ValueError("closure must be None: each evaluation of it would be a release of its own")
        try:
            part = self._clock.take()
            self._take_in(part)
        except NotPoissonError:
            self._gradients.discard()
            raise
        if part.is_last:
            sums, self._sums = self._sums, None
            self._release(sums)

    def _take_in(self, part: Part) -> None:
        if part.is_first:
            self._sums = None  # whatever an unfinished logical step has left
        elif (part.batch, part.index) != self._next:
            # Without the part that was left out this is no Poisson batch, and one example could remove it.
            raise NotPoissonError(
                f"part {part.index} of a batch must follow part {part.index - 1}, which was left out or "
                "refused; nothing of this batch is released, go on with the next one"
            )
        self._next = (-1, 0)  # until this part is taken in
        self._add(part)
        self._next = (part.batch, part.index + 1)

    def _add(self, part: Part) -> None:
        if part.size == 0:
            self._gradients.discard()  # the mean over no examples may be NaN; their sum is 0
            return
        try:
            clipped = self._gradients.clipped_sum(self._clipping)
        except NonFiniteGradientError:
            if self._group.world_size == 1:
                raise
            self._sums = [torch.full_like(parameter, torch.nan) for parameter in self._gradients.parameters]
            return  # the other processes wait for this sum, and must hear of it
        if clipped.num_examples != part.size:
            raise ValueError(
                f"the loader handed out {part.size} examples and the model saw {clipped.num_examples} in its "
                "last backward pass; give the model each batch whole, once"
            )
        if self._sums is None:
            self._sums = list(clipped.sums)
        else:
            torch._foreach_add_(self._sums, list(clipped.sums))

    def _release(self, sums: list[torch.Tensor] | None) -> None:
        plan, parameters = self.plan, self._gradients.parameters
        if sums is None:
            sums = [torch.zeros_like(parameter) for parameter in parameters]
        if plan.max_epsilon is None:
            self._accountant.step(self._step)
        else:
            self._accountant.spend(self._step)
        if self._group.is_leader:
            add_noise_(sums, plan.noise, generator=self._randomness.noise)
        if self._group.world_size > 1:
            self._group.sum_(sums)
            _check_finite(sums)
        torch._foreach_div_(sums, plan.expected_batch_size)
        for parameter, mean in zip(parameters, sums, strict=True):
            parameter.grad = mean
        self.inner.step()
        self.num_steps += 1


def _check_finite(sums: list[torch.Tensor]) -> None:
    if not all(bool(torch.isfinite(tensor.sum())) for tensor in sums):
        raise NonFiniteGradientError(
            "a gradient on some process is NaN or infinite; no process takes this step"
        )
