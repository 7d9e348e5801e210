# SPDX-License-Identifier: Apache-2.0
"""Mean accuracies of a few runs, and what they can tell: a lead within two standard errors is a tie.

A row has the `accuracy`, its deviation `std` over the `runs`, None for a single run, and the exponent `beta`.
A verdict is True, False, or None where the runs cannot tell.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[str, Any]
USUAL_STD = 0.003
"""What the paper calls its usual deviation; means that differ by less are as good as each other."""


def row_of(accuracies: Sequence[float]) -> dict[str, Any]:
    """Mean and deviation of some runs.

    >>> row_of([0.5])
    {'accuracy': 0.5, 'std': None, 'runs': 1}
    """
    std = float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else None
    return {"accuracy": float(np.mean(accuracies)), "std": std, "runs": len(accuracies)}


def error_of_difference(row: Row, other: Row) -> float | None:
    """Standard error of the difference of two means; None if one of them is a single run."""
    if row["std"] is None or other["std"] is None:
        return None
    return float(np.hypot(row["std"] / np.sqrt(row["runs"]), other["std"] / np.sqrt(other["runs"])))


def leads(row: Row, other: Row) -> bool | None:
    """Whether the first mean is above the second by more than two standard errors; False if below by more."""
    error = error_of_difference(row, other)
    apart = row["accuracy"] - other["accuracy"]
    if error is None or abs(apart) <= 2.0 * error:
        return None
    return bool(apart > 0.0)


def is_as_good(row: Row, other: Row) -> bool | None:
    """Whether the first mean is surely not below the second by a usual deviation; False if it trails."""
    if leads(other, row):
        return False
    error = error_of_difference(row, other)
    sure = error is not None and other["accuracy"] - row["accuracy"] + 2.0 * error <= USUAL_STD
    return True if sure else None


def gaussian_and_others(rows: Sequence[Row]) -> tuple[Row, list[Row]] | None:
    """The best row of beta = 2 and those of beta in [1, 2); None without both."""
    gaussian = [row for row in rows if row["beta"] == 2.0]
    others = [row for row in rows if 1.0 <= row["beta"] < 2.0]
    return (max(gaussian, key=lambda row: float(row["accuracy"])), others) if gaussian and others else None


def over_all(verdicts: Iterable[bool | None]) -> bool | None:
    """True if all are, False if one is."""
    found = set(verdicts)
    if False in found:
        return False
    return True if found == {True} else None


def told(row: Row) -> str:
    """The accuracy in percent, with its deviation where there is one."""
    spread = "" if row["std"] is None else f" +- {100 * row['std']:.2f}"
    return f"{100 * row['accuracy']:.2f}{spread}%"


def error_bars(rows: Sequence[Row]) -> list[float]:
    """Half-lengths of error bars; nothing is drawn for a single run."""
    return [float("nan") if row["std"] is None else row["std"] for row in rows]
