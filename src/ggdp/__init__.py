# SPDX-License-Identifier: Apache-2.0
"""Differential privacy with Generalized Gaussian noise.

Names are loaded when they are first used, so that `import ggdp` itself costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ggdp.accounting import (
        Accountant,
        AttackSuccess,
        Bounds,
        Estimate,
        GaussianPrivacy,
        MonteCarloEstimate,
        PrivacyLoss,
        PrivacyProfile,
        Risk,
        account,
        attack_success,
        delta,
        epsilon,
        gdp_mu,
        loss_sampler,
        monte_carlo_delta,
        monte_carlo_epsilon,
        privacy_curve,
        renyi_divergence,
        renyi_epsilon,
        trade_off,
    )
    from ggdp.calibration import (
        BestNoise,
        Calibrated,
        CalibratedFamily,
        CalibratedSpherical,
        CalibratedToRisk,
        EstimatedScale,
        RiskTarget,
        best_noise,
        calibrate_family,
        calibrate_rate,
        calibrate_scale,
        calibrate_scale_to_risk,
        calibrate_steps,
        estimate_scale,
    )
    from ggdp.distributions import (
        DiscreteGeneralizedGaussian,
        Gaussian,
        GeneralizedGaussian,
        Laplace,
        SecureGenerator,
        SphericalGeneralizedGaussian,
        secure_generator,
    )
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
    from ggdp.mechanisms import (
        AdditiveNoise,
        Adjacency,
        Composed,
        CustomMechanism,
        FixedSizeSampled,
        PoissonSampled,
        RandomAllocation,
        RandomlyTruncatedPoisson,
        Sampling,
        Shuffled,
        SphericalNoise,
        TruncatedPoisson,
    )
    from ggdp.mechanisms.custom import GaussianMixtureNoise
    from ggdp.mechanisms.grid_noise import GridNoise
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
    "AttackSuccess",
    "BestNoise",
    "Bounds",
    "BudgetExceededError",
    "Calibrated",
    "CalibratedFamily",
    "CalibratedSpherical",
    "CalibratedToRisk",
    "CannotCertifyError",
    "CheckpointError",
    "Composed",
    "CustomMechanism",
    "Density",
    "DensityNoise",
    "DensityPair",
    "DiscreteGeneralizedGaussian",
    "EpsilonTooLargeError",
    "Estimate",
    "EstimatedScale",
    "FixedSizeSampled",
    "Gaussian",
    "GaussianMixtureNoise",
    "GaussianPrivacy",
    "GeneralizedGaussian",
    "GridNoise",
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
    "PrivacyLoss",
    "PrivacyProfile",
    "RandomAllocation",
    "RandomlyTruncatedPoisson",
    "RefusedEventError",
    "Risk",
    "RiskTarget",
    "Sampling",
    "SecureGenerator",
    "SelfCheckError",
    "Shuffled",
    "SphericalGeneralizedGaussian",
    "SphericalNoise",
    "TruncatedPoisson",
    "UnsupportedModelError",
    "__version__",
    "account",
    "attack_success",
    "best_noise",
    "calibrate_family",
    "calibrate_rate",
    "calibrate_scale",
    "calibrate_scale_to_risk",
    "calibrate_steps",
    "cells_of",
    "delta",
    "epsilon",
    "estimate_scale",
    "gdp_mu",
    "loss_sampler",
    "monte_carlo_delta",
    "monte_carlo_epsilon",
    "noisy_argmax",
    "privacy_curve",
    "release",
    "renyi_divergence",
    "renyi_epsilon",
    "secure_generator",
    "trade_off",
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
    "ggdp.mechanisms.custom": ("GaussianMixtureNoise",),
    "ggdp.mechanisms.grid_noise": ("GridNoise",),
    "ggdp.privacy_loss.matched_norm": ("MatchedNormReport", "verify_matched_norm"),
    "ggdp.accounting": (
        "Accountant",
        "Bounds",
        "Estimate",
        "PrivacyLoss",
        "PrivacyProfile",
        "MonteCarloEstimate",
        "account",
        "delta",
        "epsilon",
        "loss_sampler",
        "privacy_curve",
        "renyi_divergence",
        "renyi_epsilon",
        "monte_carlo_delta",
        "monte_carlo_epsilon",
        "AttackSuccess",
        "GaussianPrivacy",
        "Risk",
        "attack_success",
        "gdp_mu",
        "trade_off",
    ),
    "ggdp.calibration": (
        "BestNoise",
        "Calibrated",
        "CalibratedFamily",
        "CalibratedSpherical",
        "EstimatedScale",
        "best_noise",
        "calibrate_family",
        "calibrate_rate",
        "calibrate_scale",
        "calibrate_steps",
        "estimate_scale",
        "CalibratedToRisk",
        "RiskTarget",
        "calibrate_scale_to_risk",
    ),
    "ggdp.distributions": (
        "DiscreteGeneralizedGaussian",
        "Gaussian",
        "GeneralizedGaussian",
        "Laplace",
        "SecureGenerator",
        "SphericalGeneralizedGaussian",
        "secure_generator",
    ),
    "ggdp.mechanisms": (
        "AdditiveNoise",
        "Adjacency",
        "Composed",
        "CustomMechanism",
        "FixedSizeSampled",
        "PoissonSampled",
        "RandomAllocation",
        "RandomlyTruncatedPoisson",
        "Sampling",
        "Shuffled",
        "SphericalNoise",
        "TruncatedPoisson",
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
