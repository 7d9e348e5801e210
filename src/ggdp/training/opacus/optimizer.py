# SPDX-License-Identifier: Apache-2.0
"""Opacus's optimizer with l_p clipping and Generalized Gaussian noise."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

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
from ggdp.training.clipping import NonFiniteGradientError
from ggdp.training.opacus import norms
from ggdp.training.poisson_batches import NotPoissonError

Generator = torch.Generator | SecureGenerator

_NOT_A_BATCH = (
    "optimizer.step() needs one whole new batch of the data loader that make_private returned, got other "
    "examples, a part of a batch, several batches, or one that was used before: the accountant counts "
    "Poisson samples; opacus.utils.batch_memory_manager.BatchMemoryManager splits a batch that is too large"
)


class GGOptimizer(DPOptimizer):  # type: ignore[misc]
    """Clips each example's gradient in the l_p norm, sums, adds noise, divides by the expected size, steps.

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
        norm: p in [1, inf]; beta if left out.

    Guarantees:
        1. The true l_p norm of what an example adds to the sum is at most `max_grad_norm` (see `norms`).
        2. A gradient that is not finite raises `NonFiniteGradientError`: no noise is drawn, no step recorded,
           no parameter changed. Of a batch that arrives in parts, the other parts are then dropped too.
        3. Told of the batches that its loader draws, it steps on one whole batch or raises `NotPoissonError`:
           not on other examples, on a part, on several batches, or twice on one. What a loop leaves behind in
           the middle of a batch is forgotten when the next pass begins.
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
        self.norm = arguments.extended_real("norm", self.beta if norm is None else norm, least=1.0)
        self.layer_norms = _layer_norms(max_grad_norm, optimizer)
        self._drawn: deque[int] | None = None  # sizes of batches without a step yet; None: no loader tells
        self._num_summed = 0  # examples of the present logical batch so far
        self._spoiled = False  # a part of the present logical batch had a gradient that is not finite
        super().__init__(
            optimizer,
            noise_multiplier=arguments.real("noise_multiplier", noise_multiplier, least=0.0),
            max_grad_norm=_whole_norm(max_grad_norm, self.layer_norms, self.norm),
            expected_batch_size=expected_batch_size,
            loss_reduction=loss_reduction,
            generator=generator,
            secure_mode=secure_mode,
            **kwargs,
        )

    @property
    def sensitivity(self) -> float:
        """The most that one example moves the sum, in the l_p norm."""
        if self.layer_norms is None:
            return float(self.max_grad_norm)
        return norms.joint_norm(self.layer_norms, self.norm)

    def begin_pass(self) -> None:
        """Forget all that was drawn before and got no step: parts of it must not mix with new batches."""
        self._drawn, self._spoiled, self._is_last_step_skipped = deque(), False, False
        self._step_skip_queue.clear()
        self._forget_sums()

    def batch_drawn(self, size: int) -> None:
        """Allow one step more, on so many examples."""
        self._drawn = deque() if self._drawn is None else self._drawn
        self._drawn.append(size)

    def clip_and_accumulate(self) -> None:
        """Add the clipped gradients of a physical batch to `summed_grad` of each parameter."""
        parameters = self.params
        for parameter in parameters:
            _check_processed_flag(parameter.grad_sample)
            _check_processed_flag(parameter.summed_grad)  # of a step whose sums zero_grad has not cleared
        gradients = [self._get_flat_grad_sample(parameter) for parameter in parameters]
        factors = self._clip_factors(gradients)
        for parameter, gradient, factor in zip(parameters, gradients, factors, strict=True):
            clipped = norms.weighted_sum(factor, gradient, parameter.dtype)
            earlier = parameter.summed_grad
            parameter.summed_grad = clipped if earlier is None else earlier + clipped
            _mark_as_processed(parameter.grad_sample)
        self._num_summed += len(gradients[0])

    def add_noise(self) -> None:
        """Put the noisy sums into `grad` of each parameter."""
        for parameter in self.params:
            _check_processed_flag(parameter.summed_grad)
        noisy = self._noisy([parameter.summed_grad for parameter in self.params])
        for parameter, gradient in zip(self.params, noisy, strict=True):
            parameter.grad = gradient.view_as(parameter)
            _mark_as_processed(parameter.summed_grad)

    def pre_step(self, closure: Callable[[], float] | None = None) -> bool:
        """Clip and, at the end of a logical batch, add noise, scale and record; whether to step."""
        if not self.params:
            return True  # nothing is trained, nothing is released
        if self._drawn is not None and not self._drawn:
            raise NotPoissonError(_NOT_A_BATCH)
        error = None if self._spoiled else self._clipping_error()
        is_last = not self._check_skip_next_step()
        self._is_last_step_skipped = not is_last
        if self._is_lost(error, is_last) or not is_last:
            return False
        self._use_up(self._num_summed)
        self.add_noise()
        self.scale_grad()
        self._num_summed = 0
        if self.step_hook:
            self.step_hook(self)
        return True

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
            found = self._finite(norms.example_norms(gradients, self.norm))
            return [norms.clip_factors(found, float(self.max_grad_norm), self.norm)] * len(gradients)
        per_layer = [self._finite(norms.example_norms([gradient], self.norm)) for gradient in gradients]
        return [
            norms.clip_factors(found, bound, self.norm)
            for found, bound in zip(per_layer, self.layer_norms, strict=True)
        ]

    def _finite(self, found: torch.Tensor) -> torch.Tensor:
        bad = torch.nonzero(~torch.isfinite(found)).flatten()
        if len(bad):
            raise NonFiniteGradientError(
                f"gradients must be finite, got NaN or infinity from {len(bad)} of {len(found)} examples "
                f"(the first is number {int(bad[0])} of its batch); nothing was released or recorded: lower "
                "the learning rate, or look at these examples and the loss"
            )
        return found

    def _noisy(self, sums: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.noise_multiplier == 0.0:
            return [total.clone() for total in sums]
        std = self.noise_multiplier * self.sensitivity
        if self.beta == 2.0 and isinstance(self.generator, torch.Generator):
            # Opacus's own draws, so that a seeded run can be compared with one of Opacus's.
            return [total + _generate_noise(std, total, generator=self.generator) for total in sums]
        noise = GeneralizedGaussian(self.beta, math.sqrt(2.0) * std)
        noisy = [total.clone() for total in sums]
        add_noise_(noisy, noise, generator=self.generator)
        return noisy


class DistributedGGOptimizer(DistributedDPOptimizer, GGOptimizer):  # type: ignore[misc]
    """`GGOptimizer` in each process of `torch.distributed`: noise is added once, by process 0.

    Guarantees:
        The parameters are the same in every process after every step. A gradient that is not finite in any
        process raises in all of them, at the end of the logical batch.
    """

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
