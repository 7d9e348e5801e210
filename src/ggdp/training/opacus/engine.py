# SPDX-License-Identifier: Apache-2.0
"""Opacus's PrivacyEngine with Generalized Gaussian noise and a certified epsilon."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from opacus.optimizers.utils import params as trainable
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ggdp import arguments
from ggdp.accounting import account
from ggdp.accounting import epsilon as epsilon_of
from ggdp.calibration import calibrate_scale, run_of
from ggdp.distributions import GeneralizedGaussian
from ggdp.mechanisms import AdditiveNoise
from ggdp.mechanisms.batches import Sampling
from ggdp.training.opacus.accountant import MECHANISM, NOT_POISSON, Entry, GGAccountant, registered
from ggdp.training.opacus.optimizer import DistributedGGOptimizer, Generator, GGOptimizer
from ggdp.training.opacus.sampling import inclusion_probability, private_loader, probability_below
from ggdp.training.opacus.spot_check import SpotCheck
from ggdp.training.plan import plan_training, sampling_of, share_of

_CLIPPINGS = ("flat", "per_layer")
_NOT_POISSON_BATCHES = (
    "no epsilon is proved for batches that are not Poisson samples, and one computed as if they were can be "
    "far too small"
)
_PRECISION_OF_OPACUS = {"epsilon_tolerance", "eps_error", "delta_error", "alphas"}


class GGPrivacyEngine(PrivacyEngine):  # type: ignore[misc]
    """Use it in place of `opacus.PrivacyEngine`, for Generalized Gaussian noise and a certified epsilon.

    Args:
        accountant: "ggdp"; Opacus's own know Gaussian noise only.
        secure_mode: draw the batches unpredictably too, not only the noise. Needs no further package.
        beta: exponent of the noise, in [1, 8].
        norm: p in [1, inf] of the clipping; 2 if left out, for every beta. norm=beta is the paper's choice
            and "matched" (see `AdditiveNoise`) the one for which epsilon is exact for 1 < beta < 2: they are
            for repeating the paper and for comparing. A gradient of many coordinates is much longer in them
            than in l_2, so that more of it is clipped, which costs 10 to 27 points of accuracy.
        sampling: how batches are drawn where they are to be no Poisson samples: "fixed-size",
            "truncated-poisson" or "with-replacement", whose numbers follow from the loader, or a
            `ggdp.Sampling` with numbers, or its text. Loader and accountant are made from it. In one process.
        check_gradients: recompute two examples of each of the first three batches by plain autograd, and
            refuse to train where Opacus's per-example gradients are others (see `SpotCheck`).

    Guarantees:
        1. With beta = 2, everything but the accountant is Opacus's: the same batches for the same seed, the
           same clipped gradients to 1e-6 relative, and from the same `noise_generator` the same noise.
        2. `get_epsilon` is certified, from the probability with which the sampler really takes an example.
        3. What Opacus allows but no epsilon is proved for is refused, as random stand-ins for empty batches,
           or makes epsilon infinite, as batches that are not Poisson.
        4. No gradient without noise is left in `grad` of a parameter, where any optimizer could step on it.

    docs/opacus.md has the two lines that an existing script changes.
    """

    def __init__(
        self,
        *,
        accountant: str = MECHANISM,
        secure_mode: bool = False,
        beta: float = 2.0,
        norm: float | str | None = None,
        sampling: Sampling | str | None = None,
        check_gradients: bool = True,
    ) -> None:
        arguments.one_of(
            "accountant", accountant, (MECHANISM,), hint="it is exact at beta = 2; leave the argument out"
        )
        self.beta, self.norm = beta, 2.0 if norm is None else norm
        _checked_law(self.beta, self.norm)
        registered()
        with warnings.catch_warnings():  # that noise is not secure, which does not hold here
            warnings.filterwarnings("ignore", message="Secure RNG turned off")
            super().__init__(accountant=accountant)
        self.secure_mode, self.check_gradients = secure_mode, check_gradients
        self.sampling = sampling
        _refuse_epochs(sampling)
        self.accountant: GGAccountant

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        data_loader: DataLoader[Any],
        noise_multiplier: float,
        max_grad_norm: float | Sequence[float],
        beta: float | None = None,
        norm: float | str | None = None,
        poisson_sampling: bool = True,
        clipping: str = "flat",
        noise_generator: Generator | None = None,
        grad_sample_mode: str = "hooks",
        rand_on_empty: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, DPOptimizer, DataLoader[Any]]:
        """As `opacus.PrivacyEngine.make_private`, whose arguments are all taken.

        Args:
            module: the model.
            optimizer: any.
            data_loader: over a dataset with a length; its batches are replaced by Poisson ones, or as the
                engine's `sampling` says.
            noise_multiplier: scale / (sqrt(2) * max_grad_norm); at beta = 2 the standard deviation over
                max_grad_norm, as in Opacus. 0 trains without noise, and epsilon is infinite.
            max_grad_norm: the most an example moves the sum of gradients, in the l_norm norm; with
                clipping="per_layer" a list of one bound for each trainable parameter.
            beta: exponent of the noise; the engine's if left out.
            norm: p in [1, inf] or "matched"; the engine's if left out.
            poisson_sampling: False leaves the loader as it is. No epsilon is proved for its batches, so that
                `get_epsilon` is infinite from the first step on.
            clipping: "flat" or "per_layer".
            noise_generator: with a seed, for tests and repetition only; left out, noise is unpredictable.
            grad_sample_mode: any in which Opacus materialises per-example gradients: "hooks", "functorch",
                "ew"; or "no_op", where the caller does.
            rand_on_empty: must stay False.
            **kwargs: as in Opacus.

        Raises:
            ValueError: an argument is out of range or asks for what has no proved epsilon.
        """
        _refuse_unproved(rand_on_empty, clipping, grad_sample_mode, max_grad_norm)
        _check_criterion(kwargs.get("criterion"), kwargs.get("loss_reduction", "mean"))
        if not poisson_sampling:
            warnings.warn(f"{_NOT_POISSON_BATCHES}; get_epsilon will be infinite", stacklevel=2)
        beta, p = self._law(beta, norm)
        multiplier = arguments.real("noise_multiplier", noise_multiplier, least=0.0)
        drawn = self._drawn(data_loader, poisson_sampling)
        dimension = _dimension(optimizer)
        # What the accountant does not cover is refused now, and not at the first step.
        if drawn is not None and multiplier > 0.0:
            planned = Entry(multiplier, 1.0, 1, beta, p, dimension, str(drawn)).step()
            account(planned)
        else:
            GGAccountant().step(
                noise_multiplier=multiplier, sample_rate=1.0 / len(data_loader), beta=beta, norm=p,
                dimension=dimension,
            )  # fmt: skip
        private_module, private_optimizer, loader = super().make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=noise_multiplier,
            max_grad_norm=max_grad_norm,
            poisson_sampling=poisson_sampling,
            clipping=clipping,
            noise_generator=noise_generator,
            grad_sample_mode=grad_sample_mode,
            beta=beta,
            norm=p,
            **kwargs,
        )
        if poisson_sampling:
            loader.batch_sampler.listener = private_optimizer
        rate = inclusion_probability(loader) if poisson_sampling else NOT_POISSON
        if drawn is not None:
            size = len(data_loader.dataset)  # type: ignore[arg-type]
            rate = share_of(drawn, size)
            private_optimizer.expected_batch_size = rate * size
        private_optimizer.count_with(
            self.accountant.get_optimizer_hook_fn(rate, None if drawn is None else str(drawn))
        )
        private_optimizer.names = {
            parameter: name for name, parameter in private_module._module.named_parameters()
        }
        _drop_raw_gradients(private_module)
        if self.check_gradients and grad_sample_mode != "no_op":
            private_optimizer.inspector = SpotCheck(private_module)
        return private_module, private_optimizer, loader

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        data_loader: DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: float,
        max_grad_norm: float | Sequence[float],
        beta: float | None = None,
        norm: float | str | None = None,
        **kwargs: Any,
    ) -> tuple[Any, DPOptimizer, DataLoader[Any]]:
        """`make_private` with the smallest noise for which `epochs` passes are certified to meet the target.

        Guarantees:
            After `epochs` passes over the loader returned, `get_epsilon(target_delta) <= target_epsilon`,
            and noise smaller by 1e-6 relative was not certified to meet it.

        Raises:
            ValueError: no noise that the accountant covers meets the target.
        """
        if not kwargs.get("poisson_sampling", True):
            raise ValueError(f"poisson_sampling must be True for a target, got False: {_NOT_POISSON_BATCHES}")
        if len(self.accountant) > 0:
            warnings.warn(
                f"{len(self.accountant)} steps are recorded already; the noise is chosen for {epochs} epochs "
                "alone, so that the total will exceed target_epsilon",
                stacklevel=2,
            )
        beta, p = self._law(beta, norm)
        rate = 1.0 / len(data_loader)
        drawn = self._drawn(data_loader, True)
        num_passes = arguments.real("epochs", epochs, above=0.0)
        if drawn is not None:
            size = len(data_loader.dataset)  # type: ignore[arg-type]
            steps = math.ceil(num_passes * _steps_of_pass(drawn, size))
            multiplier = plan_training(
                clip_norm=1.0, num_examples=size, dimension=_dimension(optimizer), delta=target_delta,
                beta=beta, norm=p, target_epsilon=target_epsilon, steps=steps, sampling=drawn,
            ).noise_multiplier * (1.0 + 1e-9)  # fmt: skip
        else:
            multiplier = certified_multiplier(
                beta=beta,
                norm=p,
                dimension=_dimension(optimizer),
                rate=rate if self.secure_mode else probability_below(rate),
                steps=math.ceil(num_passes * len(data_loader)),
                epsilon=target_epsilon,
                delta=target_delta,
            )
        return self.make_private(
            module=module,
            optimizer=optimizer,
            data_loader=data_loader,
            noise_multiplier=multiplier,
            max_grad_norm=max_grad_norm,
            beta=beta,
            norm=p,
            **{name: value for name, value in kwargs.items() if name not in _PRECISION_OF_OPACUS},
        )

    def get_epsilon(self, delta: float) -> float:
        """The certified upper bound of the epsilon spent; `accountant.epsilon(delta)` has both bounds."""
        return self.accountant.get_epsilon(delta)

    def _law(self, beta: float | None, norm: float | str | None) -> tuple[float, float]:
        return _checked_law(self.beta if beta is None else beta, self.norm if norm is None else norm)

    def _drawn(self, data_loader: DataLoader[Any], poisson_sampling: bool) -> Sampling | None:
        """How batches are drawn, with all its numbers; None for Poisson samples."""
        if self.sampling is None:
            return None
        if not poisson_sampling:
            raise ValueError(
                f"poisson_sampling must be left out beside sampling={str(self.sampling)!r}, got False: it "
                "would leave the loader as it is"
            )
        says = ":" in str(self.sampling)
        rate = None if says else 1.0 / len(data_loader)
        found = sampling_of(self.sampling, rate, None, len(data_loader.dataset))  # type: ignore[arg-type]
        return found

    def _prepare_optimizer(
        self,
        *,
        optimizer: Optimizer,
        noise_generator: Generator | None = None,
        distributed: bool = False,
        clipping: str = "flat",
        grad_sample_mode: str = "hooks",
        **kwargs: Any,
    ) -> DPOptimizer:
        inner = optimizer.original_optimizer if isinstance(optimizer, DPOptimizer) else optimizer
        kind = DistributedGGOptimizer if distributed else GGOptimizer
        return kind(optimizer=inner, generator=noise_generator, secure_mode=self.secure_mode, **kwargs)

    def _prepare_data_loader(
        self, data_loader: DataLoader[Any], *, distributed: bool, poisson_sampling: bool, **kwargs: Any
    ) -> DataLoader[Any]:
        if not poisson_sampling:
            return data_loader
        loader = super()._prepare_data_loader(
            data_loader, distributed=distributed, poisson_sampling=True, **kwargs
        )
        drawn = self._drawn(data_loader, True)
        if drawn is not None and distributed:
            raise ValueError(
                f"sampling must be left out between processes, got {str(drawn)!r}: each draws from its own "
                "part of the data; ggdp.torch.make_private(sampling=...) draws one batch for all of them"
            )
        steps = 1 if drawn is None else _steps_of_pass(drawn, len(data_loader.dataset))  # type: ignore[arg-type]
        made: DataLoader[Any] = private_loader(loader, secure=self.secure_mode, sampling=drawn, steps=steps)
        return made


def _steps_of_pass(sampling: Sampling, num_examples: int) -> int:
    return max(1, round(1.0 / share_of(sampling, num_examples)))


def _refuse_epochs(sampling: Sampling | str | None) -> None:
    """Refuse a kind whose epoch is one draw, or that is unknown."""
    kind = str(sampling).partition(":")[0]
    if kind in ("allocation", "shuffled"):
        raise ValueError(
            f"sampling must be 'fixed-size', 'truncated-poisson' or 'with-replacement' here, got {kind!r}: "
            "an epoch of such batches is one release with one noise multiplier; Opacus counts steps whose "
            "multiplier may change from one to the next; ggdp.torch.make_private(sampling=...) has it"
        )
    if sampling is not None and ":" in str(sampling):
        Sampling.parse(str(sampling))
    elif sampling is not None:
        arguments.one_of(
            "sampling", sampling, ("poisson", "fixed-size", "truncated-poisson", "with-replacement")
        )


def certified_multiplier(
    *,
    beta: float,
    norm: float,
    dimension: int,
    rate: float,
    steps: int,
    epsilon: float,
    delta: float,
) -> float:
    """The smallest noise multiplier whose run is certified to meet the target, as the ledger will read it."""
    found = calibrate_scale(
        beta=beta, epsilon=epsilon, delta=delta, rate=rate, steps=steps, norm=norm, dimension=dimension
    )
    multiplier = found.noise_multiplier
    while _achieved(multiplier, found.step, rate, steps, delta) > epsilon:  # the last digit, rounded down
        multiplier *= 1.0 + 1e-9
    return multiplier


def _achieved(multiplier: float, step: AdditiveNoise, rate: float, steps: int, delta: float) -> float:
    noise = GeneralizedGaussian.from_noise_multiplier(step.noise.beta, multiplier)
    run = run_of(AdditiveNoise(noise, 1.0, step.norm, step.dimension), rate, steps)
    return epsilon_of(run, delta=delta).upper


def _checked_law(beta: float, norm: float | str) -> tuple[float, float]:
    law = AdditiveNoise(GeneralizedGaussian(beta, 1.0), norm=norm)
    return law.noise.beta, law.p


def _dimension(optimizer: Optimizer) -> int:
    return sum(parameter.numel() for parameter in trainable(optimizer))


def _drop_raw_gradients(wrapper: Any) -> None:
    """Leave no gradient without noise in `grad`: any optimizer over the same parameters would step on it.

    Autograd puts it there besides what Opacus keeps. It stays where Opacus's hooks are off or were removed.
    """

    def drop(parameter: torch.Tensor) -> None:
        if hasattr(parameter, "grad_sample") and getattr(wrapper, "hooks_enabled", True):
            parameter.grad = None

    for parameter in wrapper._module.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(drop)


def _check_criterion(criterion: Any, loss_reduction: str) -> None:
    """What can be seen of a loss that is handed over; others show in the first batches (`SpotCheck`)."""
    reduction = getattr(criterion, "reduction", loss_reduction)
    if reduction in ("mean", "sum") and reduction != loss_reduction:
        raise ValueError(
            f"loss_reduction must be that of criterion, {reduction!r}, got {loss_reduction!r}: gradients "
            "would be multiplied by the size of the batch, which is data"
        )
    weighted = isinstance(criterion, (nn.CrossEntropyLoss, nn.NLLLoss)) and criterion.weight is not None
    if weighted and reduction == "mean":
        raise ValueError(
            "criterion must not divide by a sum over the batch, got class weights with reduction='mean': it "
            "divides by the weights of all examples, so that removing one changes the gradients of the "
            "others; use reduction='none', multiply by the weights and take the mean"
        )


def _refuse_unproved(
    rand_on_empty: bool, clipping: str, grad_sample_mode: str, max_grad_norm: object
) -> None:
    if rand_on_empty:
        raise ValueError(
            "rand_on_empty must be False, got True: where the only example of a batch is removed, a stand-in "
            "takes its place and the sum moves by up to twice max_grad_norm; empty batches work without it"
        )
    arguments.one_of(
        "clipping", clipping, _CLIPPINGS, hint='"adaptive" shows the size of a batch without noise'
    )
    if grad_sample_mode.startswith("ghost"):
        raise ValueError(
            f'grad_sample_mode must be one that keeps per-example gradients, such as "hooks", got '
            f"{grad_sample_mode!r}, which only knows l_2 norms; ggdp.torch.make_private clips in every norm "
            "without keeping them"
        )
    if (clipping == "per_layer") != isinstance(max_grad_norm, (list, tuple)):
        wanted = "a list, one bound per trainable parameter," if clipping == "per_layer" else "one number"
        raise ValueError(f"max_grad_norm must be {wanted} with clipping={clipping!r}, got {max_grad_norm!r}")
