# SPDX-License-Identifier: Apache-2.0
"""Opacus's optimizer with l_p clipping and Generalized Gaussian noise."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import torch
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer
from opacus.optimizers.optimizer import _check_processed_flag, _generate_noise, _mark_as_processed
from opacus.optimizers.utils import params as trainable
from torch.optim import Optimizer

from ggdp import arguments
from ggdp.distributions import GeneralizedGaussian
from ggdp.distributions.generalized_gaussian import BETA
from ggdp.distributions.pytorch import add_noise_
from ggdp.distributions.secure import SecureGenerator
from ggdp.errors import NonFiniteGradientError, NotPoissonError
from ggdp.training.opacus import norms

Generator = torch.Generator | SecureGenerator

_NOT_A_BATCH = (
    "optimizer.step() needs one whole new batch of the data loader that make_private returned, got other "
    "examples, a part of a batch, several batches, or one that was used before: the accountant counts "
    "Poisson samples; opacus.utils.batch_memory_manager.BatchMemoryManager splits a batch that is too large"
)


class Inspector(Protocol):
    """Who looks at per-example gradients before they are clipped."""

    def verify(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Refuse gradients that are not those of single examples."""

    def gradients_dropped(self) -> None:
        """The gradients at hand were cleared and will not be used."""


class GGOptimizer(DPOptimizer):  # type: ignore[misc]
    """The optimizer that `GGPrivacyEngine` makes: it clips, sums, adds noise, and lets the inner one step.

    Each example's gradient is clipped in the l_p norm; the noisy sum is divided by the expected batch size.

    Noise on every coordinate of the sum is GG(beta, sqrt(2) * noise_multiplier * sensitivity), where
    sensitivity is `max_grad_norm`, or the joint norm of all bounds when every parameter has its own. At
    beta = 2 that is Opacus's N(0, (noise_multiplier * sensitivity)^2).

    Args:
        optimizer: the one that steps.
        noise_multiplier: as above; 0 adds no noise, and no privacy.
        max_grad_norm: of the whole gradient, or a list with one bound per trainable parameter.
        expected_batch_size: public divisor of the noisy sum where `loss_reduction` is "mean".
        loss_reduction: "mean" or "sum".
        generator: where noise comes from; unpredictable if left out. A `torch.Generator` at beta = 2 gives
            the very draws that Opacus takes from it.
        beta: exponent of the noise.
        norm: p in [1, inf] of the clipping; 2 if left out.

    Guarantees:
        1. One example moves the sum by at most `max_grad_norm` in the true l_p norm, whatever precision the
           model computes in: sums are taken, accumulated and noised in float64 (see `norms`) and rounded to
           the dtype of the parameters last.
        2. A gradient that is not finite raises `NonFiniteGradientError`: no noise is drawn, no step recorded,
           no parameter changed. Of a batch that arrives in parts, the other parts are then dropped too.
        3. Told of the batches that its loader draws, it steps on one whole batch or raises `NotPoissonError`:
           not on other examples, on a part, on several batches, or twice on one. What a loop leaves behind in
           the middle of a batch is forgotten when the next pass begins.
        4. The wrapped optimizer sees noisy gradients only. Parameters that were not trainable when this
           optimizer was made are refused; those frozen since get no gradient.
        5. What `count_with` was given is called before every release, whatever `attach_step_hook` sets.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        noise_multiplier: float,
        max_grad_norm: float | Sequence[float],
        expected_batch_size: float | None,
        loss_reduction: str = "mean",
        generator: Generator | None = None,
        secure_mode: bool = False,
        beta: float = 2.0,
        norm: float | None = None,
        **kwargs: Any,
    ) -> None:
        self.beta = BETA.check(beta)
        self.norm = arguments.extended_real("norm", 2.0 if norm is None else norm, least=1.0)
        self.layer_norms = _layer_norms(max_grad_norm, optimizer)
        self.names: Mapping[torch.nn.Parameter, str] = {}
        self.inspector: Inspector | None = None
        self._count: Callable[[DPOptimizer], None] | None = None
        self._drawn: deque[int] | None = None  # sizes of batches without a step yet; None: no loader tells
        self._num_summed = 0  # examples of the present logical batch so far
        self._summed_bound: Any = None  # to which they were clipped
        self._spoiled = False  # a part of the present logical batch had a gradient that is not finite
        self._noisy: list[torch.Tensor] = []
        self._multiplier = self._bound = 0.0
        self._first_params = dict.fromkeys(trainable(optimizer))
        super().__init__(
            optimizer,
            noise_multiplier=noise_multiplier,
            max_grad_norm=_whole_norm(max_grad_norm, self.layer_norms, self.norm),
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
            generator=generator,
            secure_mode=secure_mode,
            **kwargs,
        )
        self._most_examples = int(max(norms.MOST_EXAMPLES, 2.0 * (expected_batch_size or 0.0)))

    @property
    def noise_multiplier(self) -> float:
        """As given; Opacus's noise schedulers set it, and every step is recorded with its own."""
        return self._multiplier

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        self._multiplier = arguments.real("noise_multiplier", value, least=0.0)

    @property
    def max_grad_norm(self) -> float:
        """The bound on the whole gradient; Opacus's clipping schedulers set it, and noise follows it."""
        return self._bound

    @max_grad_norm.setter
    def max_grad_norm(self, value: float) -> None:
        if self.layer_norms is not None and self._bound not in (0.0, value):
            raise ValueError(
                f"max_grad_norm cannot change where every parameter has its own bound, got {value!r}: the "
                'bounds would stay and the noise would change; use clipping="flat" with a scheduler'
            )
        self._bound = _bound(value)

    @property
    def sensitivity(self) -> float:
        """The most that one example moves the sum, in the l_p norm."""
        return self._bound

    @property
    def _step_supports_amp_scaling(self) -> NoReturn:
        """What `GradScaler.step` asks for first."""
        raise ValueError(
            "GradScaler cannot be used with a private optimizer: it multiplies the loss, so that every "
            "example is clipped at the wrong size, and it leaves out steps by looking at gradients without "
            "noise; use autocast with bfloat16, which needs no scaling, or GradScaler(enabled=False)"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a private optimizer cannot be copied or pickled: the copy could step on the same batch again, "
            "beside the loader and the accountant; keep optimizer.state_dict() or the engine's checkpoint"
        )

    def add_param_group(self, param_group: dict[str, Any]) -> NoReturn:
        """Refuse: hooks and accountant are made for the parameters there were at the start."""
        raise ValueError(
            "parameters cannot be added to a private optimizer; call make_private again with all of them "
            "(the accountant of the same engine goes on counting)"
        )

    def count_with(self, record: Callable[[DPOptimizer], None]) -> None:
        """Call `record` with this optimizer before every release; a step that it refuses is not taken."""
        self._count, self.step_hook = record, None

    def begin_pass(self) -> None:
        """Forget all that was drawn before and got no step: parts of it must not mix with new batches."""
        self._drawn, self._spoiled, self._is_last_step_skipped = deque(), False, False
        self._step_skip_queue.clear()
        self._forget_sums()

    def batch_drawn(self, size: int) -> None:
        """Allow one step more, on so many examples."""
        self._drawn = deque() if self._drawn is None else self._drawn
        self._drawn.append(size)

    def zero_grad(self, set_to_none: bool = False) -> None:
        """As in Opacus: sums of a batch whose parts are not all there yet are kept."""
        if self.inspector is not None:
            self.inspector.gradients_dropped()
        super().zero_grad(set_to_none)

    def clip_and_accumulate(self) -> None:
        """Add the clipped gradients of a physical batch to `summed_grad` of each parameter, in float64."""
        parameters = self.params
        for parameter in parameters:
            _check_processed_flag(parameter.grad_sample)
            _check_processed_flag(parameter.summed_grad)  # of a step whose sums zero_grad has not cleared
        gradients = [self._get_flat_grad_sample(parameter) for parameter in parameters]
        self._check_shapes(parameters, gradients)
        if self.inspector is not None:
            self.inspector.verify(parameters)
        self._check_bound(len(gradients[0]))
        factors = self._clip_factors(gradients)
        for parameter, gradient, factor in zip(parameters, gradients, factors, strict=True):
            clipped = norms.weighted_sum(factor, gradient)
            earlier = parameter.summed_grad
            parameter.summed_grad = clipped if earlier is None else earlier + clipped
            _mark_as_processed(parameter.grad_sample)
        self._num_summed += len(gradients[0])

    def add_noise(self) -> None:
        """Take noisy copies of the sums, which `scale_grad` hands to the parameters."""
        for parameter in self.params:
            _check_processed_flag(parameter.summed_grad)
        self._noisy = self._with_noise([parameter.summed_grad for parameter in self.params])
        for parameter in self.params:
            _mark_as_processed(parameter.summed_grad)

    def scale_grad(self) -> None:
        """Put the noisy sums into `grad`, divided by the expected batch size, in the parameters' dtypes."""
        noisy, self._noisy = self._noisy, []
        divisor = self._divisor()
        for parameter, total in zip(self.params, noisy, strict=True):
            parameter.grad = (total if divisor == 1.0 else total / divisor).to(parameter.dtype)

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Clip and, at the end of a logical batch, record, add noise and scale; whether to step."""
        parameters = self._checked_parameters()
        if not parameters:
            return True  # nothing is trained, nothing is released
        if self._drawn is not None and not self._drawn:
            raise NotPoissonError(_NOT_A_BATCH)
        error = None if self._spoiled else self._clipping_error()
        is_last = not self._check_skip_next_step()
        self._is_last_step_skipped = not is_last
        if self._is_lost(error, is_last) or not is_last:
            return False
        self._use_up(self._num_summed)
        if self._count is not None:
            self._count(self)
        self.add_noise()
        self.scale_grad()
        self._num_summed = 0
        if self.step_hook:
            self.step_hook(self)
        return True

    def _checked_parameters(self) -> list[torch.nn.Parameter]:
        """Those trained now; raw gradients of the others, which autograd may have left, are dropped."""
        now: list[torch.nn.Parameter] = self.params
        added = [parameter for parameter in now if parameter not in self._first_params]
        if added:
            raise ValueError(
                "parameters trained must be among those that were trainable when make_private was called, "
                f"got {self._name(added[0])} besides: Opacus keeps no per-example gradients of it; unfreeze "
                "or add parameters first and call make_private again (the same engine goes on counting)"
            )
        kept = set(now)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter not in kept:
                    parameter.grad = None
        return now

    def _name(self, parameter: torch.nn.Parameter) -> str:
        return repr(self.names.get(parameter, f"one of shape {tuple(parameter.shape)}"))

    def _check_shapes(
        self, parameters: Sequence[torch.nn.Parameter], gradients: Sequence[torch.Tensor]
    ) -> None:
        num_examples = max(len(gradient) for gradient in gradients)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient.shape != (num_examples, *parameter.shape):
                raise ValueError(
                    f"per-example gradients of {self._name(parameter)} must have the shape "
                    f"{(num_examples, *parameter.shape)}, one for each of {num_examples} examples, got "
                    f"{tuple(gradient.shape)}: its layer was called with something else than a row per "
                    "example (a positional embedding of arange(length) is; expand it to the whole batch)"
                )

    def _check_bound(self, num_examples: int) -> None:
        bound = (self._bound, self.norm)
        if self._num_summed and bound != self._summed_bound:
            raise ValueError(
                f"max_grad_norm and norm must stay the same within a logical batch, got {bound} after "
                f"{self._summed_bound}: noise would not fit what was summed; call schedulers between batches"
            )
        self._summed_bound = bound
        if self._num_summed + num_examples > self._most_examples:
            raise ValueError(
                f"a logical batch must have at most {self._most_examples} examples, got more: the rounding "
                "of their sum is covered up to twice expected_batch_size"
            )

    def _clipping_error(self) -> NonFiniteGradientError | None:
        try:
            self.clip_and_accumulate()
        except NonFiniteGradientError as error:
            return error
        return None

    def _is_lost(self, error: NonFiniteGradientError | None, is_last: bool) -> bool:
        """Whether this part's logical batch has a gradient that is not finite; raises at the first."""
        lost = self._spoiled or error is not None
        self._spoiled = lost and not is_last
        if lost:
            self._forget_sums()
        if error is not None:
            raise error
        return lost

    def _use_up(self, size: int) -> None:
        """Match the examples summed with a batch drawn; those before it were left out by the loop."""
        while self._drawn:
            if self._drawn.popleft() == size:
                return
        if self._drawn is not None:
            self._forget_sums()
            raise NotPoissonError(_NOT_A_BATCH)

    def _forget_sums(self) -> None:
        self._num_summed = 0
        for parameter in self.params:
            parameter.summed_grad = None

    def _clip_factors(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self.layer_norms is None:
            return [self._factors(gradients, self._bound)] * len(gradients)
        return [
            self._factors([gradient], bound)
            for gradient, bound in zip(gradients, self._current_bounds(), strict=True)
        ]

    def _factors(self, gradients: Sequence[torch.Tensor], bound: float) -> torch.Tensor:
        found = norms.example_norms(gradients, self.norm)
        if not bool(torch.isfinite(found).all()):
            bad = torch.nonzero(~torch.isfinite(found)).flatten()
            raise NonFiniteGradientError(
                f"gradients must be finite, got NaN or infinity from {len(bad)} of {len(found)} examples "
                f"(the first is number {int(bad[0])} of its batch); nothing was released or recorded: lower "
                "the learning rate, or look at these examples and the loss"
            )
        return norms.clip_factors(found, bound, self.norm, self._most_examples)

    def _current_bounds(self) -> list[float]:
        """The bounds of the parameters trained now: some may have been frozen since."""
        of_first = dict(zip(self._first_params, self.layer_norms or (), strict=True))
        return [of_first[parameter] for parameter in self.params]

    def _divisor(self) -> float:
        if self.loss_reduction != "mean":
            return 1.0
        return float(self.expected_batch_size * self.accumulated_iterations)

    def _with_noise(self, sums: list[torch.Tensor]) -> list[torch.Tensor]:
        """Sums and noise, in float64; draws in float32 unless a parameter is float64."""
        if self._multiplier == 0.0:
            return [total.clone() for total in sums]
        std = self._multiplier * self.sensitivity
        dtypes = [torch.promote_types(parameter.dtype, torch.float32) for parameter in self.params]
        drawn = [torch.zeros_like(total, dtype=dtype) for total, dtype in zip(sums, dtypes, strict=True)]
        if self.beta == 2.0 and isinstance(self.generator, torch.Generator):
            # Opacus's own draws, so that a seeded run can be compared with one of Opacus's.
            drawn = [_generate_noise(std, reference, generator=self.generator) for reference in drawn]
        else:
            noise = GeneralizedGaussian(self.beta, math.sqrt(2.0) * std)
            add_noise_(drawn, noise, generator=self.generator)
        return [total + noise for total, noise in zip(sums, drawn, strict=True)]


class DistributedGGOptimizer(DistributedDPOptimizer, GGOptimizer):  # type: ignore[misc]
    """`GGOptimizer` in each process of `torch.distributed`: noise is added once, by process 0.

    Guarantees:
        The parameters are the same in every process after every step. A gradient that is not finite in any
        process raises in all of them, at the end of the logical batch.
    """

    def add_noise(self) -> None:
        """Add the sums of all processes, in float64, to which process 0 has added noise."""
        GGOptimizer.add_noise(self)
        for total in self._noisy:
            torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM)

    def reduce_gradients(self) -> None:
        """Nothing is left to do: `add_noise` has added up what the processes have."""

    def _divisor(self) -> float:
        return super()._divisor() * (self.world_size if self.loss_reduction == "mean" else 1)

    def _with_noise(self, sums: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.rank == 0 and self._multiplier > 0.0:
            return super()._with_noise(sums)
        return [total.clone() for total in sums]  # which takes the other processes' sums

    def _is_lost(self, error: NonFiniteGradientError | None, is_last: bool) -> bool:
        """As in one process, but decided by all together, where all of them pass: at the last part."""
        self._spoiled = self._spoiled or error is not None
        if not is_last:
            return self._spoiled
        anywhere = torch.tensor([float(self._spoiled)], device=self.params[0].device)
        torch.distributed.all_reduce(anywhere, op=torch.distributed.ReduceOp.MAX)
        self._spoiled = False
        if anywhere.item():
            self._forget_sums()
            raise NonFiniteGradientError(
                "gradients must be finite, got NaN or infinity in at least one process; nothing was released "
                "or recorded: lower the learning rate, or look at the examples and the loss"
            ) from error
        return False


def _layer_norms(max_grad_norm: float | Sequence[float], optimizer: Optimizer) -> tuple[float, ...] | None:
    if not isinstance(max_grad_norm, (list, tuple)):
        return None
    bounds = tuple(_bound(bound) for bound in max_grad_norm)
    if len(bounds) != len(trainable(optimizer)):
        raise ValueError(
            f"max_grad_norm must have one bound for each of the {len(trainable(optimizer))} trainable "
            f"parameters, got {len(bounds)}"
        )
    return bounds


def _whole_norm(given: Any, layer_norms: tuple[float, ...] | None, p: float) -> float:
    return _bound(given) if layer_norms is None else norms.joint_norm(layer_norms, p)


def _bound(value: float) -> float:
    return arguments.real("max_grad_norm", value, least=norms.LEAST_CLIP_NORM)
