# SPDX-License-Identifier: Apache-2.0
"""An (epsilon, delta) guarantee in words, and what it leaves to an adversary who tests for one record.

Let S be the outputs on which a test says "it was there". With P the law of the output with the record and Q
the law without it, the test's true-positive rate is P(S) and its false-positive rate Q(S). (epsilon,
delta)-DP in the direction REMOVE is P(S) <= e^epsilon Q(S) + delta for every S. In the direction ADD it is
Q(S) <= e^epsilon P(S) + delta for every S; applied to the complement of S,
P(S) <= 1 - e^-epsilon (1 - delta - Q(S)).
ADD_REMOVE and REPLACE are both at once (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ggdp import arguments
from ggdp.mechanisms import Adjacency
from ggdp.reporting.records import CertifiedNumber, Fields, rounded_down, rounded_up

FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1)

_MOST_EXPONENT = 700.0  # exp of 710 is no double any more

_NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "Neighbours: two datasets, one of which has one {unit} more than the other.",
    Adjacency.REMOVE: (
        "Neighbours: a dataset with one {unit}, and the same without it, in this direction only: the chance "
        "of every outcome with the {unit} is bounded by its chance without."
    ),
    Adjacency.ADD: (
        "Neighbours: a dataset with one {unit}, and the same without it, in this direction only: the chance "
        "of every outcome without the {unit} is bounded by its chance with it."
    ),
    Adjacency.REPLACE: "Neighbours: two datasets of equal size, in which one {unit} has different values.",
}


@dataclass(frozen=True)
class Guarantee:
    """Certified pairs (epsilon, delta), all true of the same output.

    Attributes:
        points: at least one pair; the first is the one that is quoted.
        adjacency: which datasets are neighbours.
        unit: what a dataset consists of.
        detections: certified pairs (false positive rate, most detections), where the record has them. They
            hold between the rates too: detections do not fall as false positives rise, and fewer than in
            proportion are gained.

    >>> promise = Guarantee(((1.0, 1e-5),), Adjacency.ADD_REMOVE)
    >>> round(promise.most_detection(0.01), 4), promise.most_detection(1.0)
    (0.0272, 1.0)
    """

    points: Sequence[tuple[float, float]]
    adjacency: Adjacency
    unit: str = "record"
    detections: Sequence[tuple[float, float]] = ()

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("points must hold at least one pair (epsilon, delta), got none")
        for epsilon, delta in self.points:
            arguments.real("epsilon", epsilon, least=0.0)
            arguments.real("delta", delta, least=0.0, most=1.0)

    def most_detection(self, false_positive_rate: float) -> float:
        """The largest true-positive rate of any test with this false-positive rate."""
        by_points = min(_detection(point, self.adjacency, false_positive_rate) for point in self.points)
        known = (
            most * max(1.0, false_positive_rate / rate * (1.0 + 1e-15)) for rate, most in self.detections
        )
        return min([by_points, *known])

    @property
    def by_all_pairs(self) -> str:
        """What `most_detection` rests on, in words; empty for a single pair."""
        if self.detections:
            return ", by the whole privacy profile"
        return f", by all {len(self.points)} pairs together" if len(self.points) > 1 else ""

    @property
    def neighbours(self) -> str:
        """The neighbouring relation as a sentence."""
        return _NEIGHBOURS[self.adjacency].format(unit=self.unit)

    def sentences(self) -> list[str]:
        """The guarantee in words: exact, and nothing more."""
        epsilon, delta = self.points[0]
        chance = self.most_detection(0.01)
        several = len(self.points) > 1
        among = f"This is one of {len(self.points)} pairs that hold at once. " if several else ""
        alone = ", by this pair alone" * (several or bool(self.detections))
        about, yes, no = (
            (f"which of two values one given {self.unit} has", "it is the second", "it is the first")
            if self.adjacency is Adjacency.REPLACE
            else (f"whether one given {self.unit} was among the data", "it was there", "it was not")
        )
        return [
            f"Take an adversary who sees the output, knows every other {self.unit}, the program and all its "
            f"settings, has unlimited time, and wants to tell {about}. To say '{yes}' when {no} is a false "
            "alarm, to say so when it is true a detection. With one false alarm in a hundred, the "
            f"probability of a detection is at most {rounded_up(100.0 * chance, 3)}%{self.by_all_pairs}; "
            "guessing blindly reaches 1%.",
            f"The output is ({rounded_up(epsilon, 6)}, {rounded_up(delta, 6)})-differentially private. "
            f"{among}{self.neighbours}",
            "Any test that raises a false alarm with probability a makes a detection with probability at "
            f"most {self._formula(epsilon, delta)}{alone}.",
            "It holds whatever the data are, and it is not weakened by anything that is computed from the "
            f"output later. It does not say that nothing can be learnt about a {self.unit} from what the "
            "others have in common.",
        ]

    def _formula(self, epsilon: float, delta: float) -> str:
        # Every constant rounded to the side that keeps the bound one.
        factor = rounded_up(_exp(epsilon), 4) if epsilon <= _MOST_EXPONENT else f"e^{rounded_up(epsilon, 6)}"
        first = f"{factor} a + {rounded_up(delta, 3)}"
        second = f"1 - {rounded_down(_exp(-epsilon), 4)} (1 - {rounded_up(delta, 3)} - a)"
        if self.adjacency is Adjacency.REMOVE:
            return first
        return second if self.adjacency is Adjacency.ADD else f"the smaller of {first} and {second}"


def risk_sentences(result: Fields) -> list[str]:
    """A result of `risk` in words, the risk first and epsilon last; every number rounded to its safe side."""

    def percent(found: CertifiedNumber) -> str:
        return f"{rounded_up(100.0 * (1.0 if found.upper is None else found.upper), 4)}%"

    prior = result.real("prior", above=0.0, most=1.0)
    lines = []
    for attack in result.listed("attacks"):
        alarms = attack.real("false_positive_rate", above=0.0, most=1.0)
        lines.append(
            f"With false alarms in {100.0 * alarms:g}% of the cases, no attacker detects more than "
            f"{percent(attack.bounds('true_positive_rate'))}; blind guessing detects {100.0 * alarms:g}%. At "
            f"a prior of {100.0 * prior:g}% such an alarm is true in at most "
            f"{percent(attack.bounds('posterior'))} of the cases."
        )
    lines.append(
        f"At no rate of false alarms do detections exceed them by more than "
        f"{percent(result.bounds('advantage'))} of the cases (the advantage)."
    )
    lines.append(
        f"The best guess is right in at most {percent(result.bounds('bayes_accuracy'))} of the cases; "
        f"without the output, in {100.0 * max(prior, 1.0 - prior):g}%."
    )
    mu, least = result.bounds("mu"), result.real("least_delta", least=0.0, most=1.0)
    if mu.upper is not None:
        regret = result.bounds("regret").upper
        whole = f" for every delta from {least:g} on" if least else ""
        lines.append(
            f"It is as private as one Gaussian release with mu = {rounded_up(mu.upper, 6)} (sensitivity over "
            f"standard deviation){whole}. That overstates the success of an attacker, in either error rate, "
            f"by at most {rounded_up(1.0 if regret is None else regret, 3)}."
        )
    epsilon, delta = result.bounds("epsilon").upper, result.real("delta", least=0.0, most=1.0)
    if epsilon is not None:
        lines.append(f"Epsilon is at most {rounded_up(epsilon, 6)} at delta = {delta:g}.")
    return lines


def one_pair(
    epsilon: float | None, delta: float, adjacency: Adjacency, unit: str = "record"
) -> Guarantee | None:
    """The guarantee of a single pair; None where epsilon has no upper bound."""
    return None if epsilon is None else Guarantee(((epsilon, delta),), adjacency, unit)


def _detection(point: tuple[float, float], adjacency: Adjacency, false_positive_rate: float) -> float:
    epsilon, delta = point
    removed = _exp(epsilon) * false_positive_rate + delta
    added = 1.0 - _exp(-epsilon) * (1.0 - delta - false_positive_rate)
    bounds = [1.0]
    if adjacency is not Adjacency.ADD:
        bounds.append(removed)
    if adjacency is not Adjacency.REMOVE:
        bounds.append(added)
    return max(0.0, min(bounds))


def _exp(value: float) -> float:
    return math.exp(min(value, _MOST_EXPONENT))
