# SPDX-License-Identifier: Apache-2.0
"""Differential privacy with Generalized Gaussian noise.

Names are loaded when they are first used, so that `import ggdp` itself costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggdp.accounting import (
        Accountant,
        Bounds,
        Estimate,
        MonteCarloEstimate,
        PrivacyProfile,
        account,
        delta,
        epsilon,
        loss_sampler,
        monte_carlo_delta,
        monte_carlo_epsilon,
        privacy_curve,
        renyi_divergence,
    )
    from ggdp.calibration import (
        BestNoise,
        Calibrated,
        CalibratedFamily,
        EstimatedScale,
        best_noise,
        calibrate_family,
        calibrate_rate,
        calibrate_scale,
        calibrate_steps,
        estimate_scale,
    )
    from ggdp.distributions import Gaussian, GeneralizedGaussian, Laplace, SecureGenerator, secure_generator
    from ggdp.errors import (
        BudgetExceededError,
        CannotCertifyError,
        CheckpointError,
        EpsilonTooLargeError,
        NoDominatingPairError,
        NonFiniteGradientError,
        NotPoissonError,
        OtherProcessError,
        ParameterError,
        RefusedEventError,
        SelfCheckError,
        UnsupportedModelError,
    )
    from ggdp.mechanisms import AdditiveNoise, Adjacency, Composed, CustomMechanism, PoissonSampled
    from ggdp.mechanisms.gaussian_mixture import GaussianMixtureNoise
    from ggdp.mechanisms.release import release
    from ggdp.privacy_loss.custom import (
        DensityNoise,
        DensityPair,
        LossSurvival,
        OutcomeProbabilities,
        cells_of,
    )
    from ggdp.privacy_loss.density import Density, Mixture
    from ggdp.privacy_loss.matched_norm import MatchedNormReport, verify_matched_norm
    from ggdp.selection.argmax import NoisyArgmax, noisy_argmax

    __version__: str

__all__ = [
    "Accountant",
    "AdditiveNoise",
    "Adjacency",
    "BestNoise",
    "Bounds",
    "BudgetExceededError",
    "Calibrated",
    "CalibratedFamily",
    "CannotCertifyError",
    "CheckpointError",
    "Composed",
    "CustomMechanism",
    "Density",
    "DensityNoise",
    "DensityPair",
    "EpsilonTooLargeError",
    "Estimate",
    "EstimatedScale",
    "Gaussian",
    "GaussianMixtureNoise",
    "GeneralizedGaussian",
    "Laplace",
    "LossSurvival",
    "MatchedNormReport",
    "Mixture",
    "MonteCarloEstimate",
    "NoDominatingPairError",
    "NoisyArgmax",
    "NonFiniteGradientError",
    "NotPoissonError",
    "OtherProcessError",
    "OutcomeProbabilities",
    "ParameterError",
    "PoissonSampled",
    "PrivacyProfile",
    "RefusedEventError",
    "SecureGenerator",
    "SelfCheckError",
    "UnsupportedModelError",
    "__version__",
    "account",
    "best_noise",
    "calibrate_family",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_steps",
    "cells_of",
    "delta",
    "epsilon",
    "estimate_scale",
    "loss_sampler",
    "monte_carlo_delta",
    "monte_carlo_epsilon",
    "noisy_argmax",
    "privacy_curve",
    "release",
    "renyi_divergence",
    "secure_generator",
    "verify_matched_norm",
]

_ROOMS = {
    "ggdp.errors": (
        "BudgetExceededError",
        "CannotCertifyError",
        "CheckpointError",
        "EpsilonTooLargeError",
        "NoDominatingPairError",
        "NonFiniteGradientError",
        "NotPoissonError",
        "OtherProcessError",
        "ParameterError",
        "RefusedEventError",
        "SelfCheckError",
        "UnsupportedModelError",
    ),
    "ggdp.mechanisms.gaussian_mixture": ("GaussianMixtureNoise",),
    "ggdp.privacy_loss.matched_norm": ("MatchedNormReport", "verify_matched_norm"),
    "ggdp.accounting": (
        "Accountant",
        "Bounds",
        "Estimate",
        "PrivacyProfile",
        "MonteCarloEstimate",
        "account",
        "delta",
        "epsilon",
        "loss_sampler",
        "privacy_curve",
        "renyi_divergence",
        "monte_carlo_delta",
        "monte_carlo_epsilon",
    ),
    "ggdp.calibration": (
        "BestNoise",
        "Calibrated",
        "CalibratedFamily",
        "EstimatedScale",
        "best_noise",
        "calibrate_family",
        "calibrate_rate",
        "calibrate_scale",
        "calibrate_steps",
        "estimate_scale",
    ),
    "ggdp.distributions": (
        "Gaussian",
        "GeneralizedGaussian",
        "Laplace",
        "SecureGenerator",
        "secure_generator",
    ),
    "ggdp.mechanisms": (
        "AdditiveNoise",
        "Adjacency",
        "Composed",
        "CustomMechanism",
        "PoissonSampled",
        "release",
    ),
    "ggdp.privacy_loss.custom": (
        "DensityNoise",
        "DensityPair",
        "LossSurvival",
        "OutcomeProbabilities",
        "cells_of",
    ),
    "ggdp.privacy_loss.density": ("Density", "Mixture"),
    "ggdp.selection": ("NoisyArgmax", "noisy_argmax"),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from its room; `__version__` is the installed version."""
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module 'ggdp' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("ggdp")
    except metadata.PackageNotFoundError:
        return "(a source tree that is not installed)"
