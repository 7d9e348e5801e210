# SPDX-License-Identifier: Apache-2.0
"""The errors that ggdp raises beyond Python's own, each with the class that a caller would expect it under.

An argument that is out of range is a plain `ValueError` or `TypeError`, whose message names the argument, the
value and the range. The classes below are for what a program may want to catch by itself.
"""

__all__ = [
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
]


class CannotCertifyError(ArithmeticError):
    """A method has no certified answer for this question; another one may have."""


class EpsilonTooLargeError(ValueError):
    """Epsilon at the delta asked for is larger than what is computed.

    Attributes:
        at_least: a certified lower bound of epsilon; 0 where none is known.
    """

    def __init__(self, message: str, at_least: float = 0.0) -> None:
        super().__init__(message)
        self.at_least = at_least

    def __reduce__(self) -> tuple[type, tuple[str, float]]:
        return type(self), (str(self), self.at_least)


class NoDominatingPairError(ValueError):
    """For this vector release no pair of output laws is known to be the worst one (a dominating pair)."""


class BudgetExceededError(RuntimeError):
    """A release would exceed the budget; it was not recorded, and nothing may be released.

    Attributes:
        mechanism: what was to be released.
        times: how many times.
        budget: what there was to spend.
    """

    def __init__(self, mechanism: object, times: int, budget: object) -> None:
        super().__init__(mechanism, times, budget)
        self.mechanism = mechanism
        self.times = times
        self.budget = budget

    def __str__(self) -> str:
        times = "" if self.times == 1 else f" {self.times} times"
        return (
            f"releasing {self.mechanism}{times} would exceed the budget {self.budget}; "
            "nothing was recorded, and nothing may be released; take fewer releases or more noise"
        )


class UnsupportedModelError(ValueError):
    """The model has a part for which the gradient of one example is not defined, or cannot be found."""


class SelfCheckError(UnsupportedModelError):
    """A check failed: an example run alone has another gradient than the one that was clipped."""


class NonFiniteGradientError(ValueError):
    """The gradient of some example is NaN or infinite, so no scaling can bound its norm."""


class ParameterError(ValueError):
    """The optimizer would move parameters that were not clipped and noised, or some are not finite."""


class NotPoissonError(RuntimeError):
    """A training step was asked for on examples that did not come from the private data loader."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used here; nothing was changed."""


class OtherProcessError(RuntimeError):
    """Another process of the run could not go on, so that none does; the message is that process's own."""


class RefusedEventError(ValueError):
    """An event of another library has no exact equal in ggdp; `event` is the innermost such one."""

    def __init__(self, event: object, reason: str) -> None:
        super().__init__(reason)
        self.event = event
