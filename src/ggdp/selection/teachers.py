# SPDX-License-Identifier: Apache-2.0
"""Teachers: one classifier for each part of the private data, and their votes on public queries."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.selection.votes import Votes

Progress = Callable[[int, int], None]
"""Called with how many teachers are ready, and how many there are."""


class Classifier(Protocol):
    """What scikit-learn calls a classifier."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows X with labels y."""
        ...

    def predict(self, X: Any) -> Any:
        """A label for each row."""
        ...


@dataclass(frozen=True, eq=False)
class _OneClass:
    """The teacher of a part in which all labels are equal, which many classifiers refuse to learn."""

    label: int

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.full(len(X), self.label, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class TeacherEnsemble:
    """Classifiers trained on disjoint parts of the data, so that one record reaches one vote.

    Attributes:
        teachers: fitted, one for each part.
        num_classes: labels are 0, ..., num_classes - 1.
        parts: the rows each teacher saw; disjoint, and all rows together.
    """

    teachers: tuple[Any, ...]
    num_classes: int
    parts: tuple[NDArray[np.int64], ...]

    @classmethod
    def fit(
        cls,
        classifier: Classifier,
        X: ArrayLike,
        y: ArrayLike,
        *,
        num_teachers: int,
        num_classes: int,
        rng: Rng,
        n_jobs: int = 1,
        on_progress: Progress = lambda ready, total: None,
    ) -> "TeacherEnsemble":
        """Split the rows at random into parts of equal size and train a copy of `classifier` on each.

        The split looks at row numbers only: replacing one record changes the data of one teacher and of no
        other, so that it can change one vote of every query (`Adjacency.REPLACE`). `num_classes` is public
        knowledge, not read from the labels.

        Args:
            classifier: any scikit-learn classifier; it is copied, never fitted itself.
            X: private records, one row each.
            y: their labels, whole numbers in [0, num_classes).
            num_teachers: how many parts, at most the number of rows.
            num_classes: how many labels there are.
            rng: splits the rows. A fixed `random_state` of the classifier makes the whole repeatable.
            n_jobs: processes or threads of joblib; -1 for all cores.
            on_progress: hears how many teachers are ready.
        """
        from joblib import Parallel, delayed
        from sklearn.base import clone

        records, labels = np.asarray(X), _labels(y, num_classes)
        if len(records) != len(labels):
            raise ValueError(f"X and y must have equal length, got {len(records)} and {len(labels)}")
        total = arguments.whole("num_teachers", num_teachers, most=len(records), hint="one row each at least")
        parts = tuple(np.sort(part) for part in np.array_split(_permutation(len(records), rng), total))
        jobs = (delayed(_trained)(clone(classifier), records[part], labels[part]) for part in parts)
        teachers = []
        for teacher in Parallel(n_jobs=n_jobs, return_as="generator")(jobs):
            teachers.append(teacher)
            on_progress(len(teachers), total)
        return cls(tuple(teachers), num_classes, parts)

    def vote(self, X: ArrayLike) -> Votes:
        """How many teachers choose each class, for each row of X. Private until noise is added."""
        queries = np.asarray(X)
        counts = np.zeros((len(queries), self.num_classes), dtype=np.int64)
        rows = np.arange(len(queries))
        for teacher in self.teachers:
            counts[rows, np.asarray(teacher.predict(queries), dtype=np.int64)] += 1
        return Votes(counts)


def _trained(classifier: Classifier, X: NDArray[Any], y: NDArray[np.int64]) -> Any:
    if np.all(y == y[0]):
        return _OneClass(int(y[0]))
    return classifier.fit(X, y)


def _permutation(size: int, rng: Rng) -> NDArray[np.int64]:
    """Row numbers in random order; by sorting uniform doubles, which both kinds of generator have."""
    return np.argsort(rng.random(size), kind="stable").astype(np.int64)


def _labels(y: ArrayLike, num_classes: int) -> NDArray[np.int64]:
    num_classes = arguments.whole("num_classes", num_classes, least=2)
    labels = arguments.finite_array("y", y)
    if labels.ndim != 1 or np.any((labels != np.rint(labels)) | (labels < 0) | (labels >= num_classes)):
        raise ValueError(f"y must hold one whole number in [0, {num_classes}) for each row")
    return labels.astype(np.int64)
