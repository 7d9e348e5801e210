# SPDX-License-Identifier: Apache-2.0
"""PATE: teachers vote on public queries, an aggregator publishes labels, a student learns from them.

A teacher is a classifier trained on one part of the private data, so that one record reaches one vote. The
student sees public queries and published labels only, and so may be published itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp import arguments
from ggdp.accounting import Bounds
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.selection.aggregation import Aggregator, Labelling
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
    """The teachers of PATE: classifiers trained on disjoint parts of the data; a record moves one vote.

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


@dataclass(frozen=True, eq=False)
class Student:
    """A classifier that learnt from the published labels. It costs no privacy beyond that of the labels."""

    model: Any

    @classmethod
    def fit(cls, classifier: Classifier, queries: ArrayLike, labelling: Labelling) -> "Student":
        """Train a copy of `classifier` on the queries that were answered.

        Raises:
            ValueError: fewer than two classes were answered, so that there is nothing to tell apart.
        """
        from sklearn.base import clone

        rows, answered = np.asarray(queries), labelling.answered
        if len(rows) != len(answered):
            raise ValueError(f"queries must be the {len(answered)} labelled ones, got {len(rows)}")
        labels = labelling.labels[answered]
        if len(np.unique(labels)) < 2:
            raise ValueError(
                f"labelling must answer queries of at least two classes, got {len(labels)} answers of "
                f"{len(np.unique(labels))}; ask more queries, or lower the threshold"
            )
        return cls(clone(classifier).fit(rows[answered], labels))

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """A label for each row."""
        return np.asarray(self.model.predict(np.asarray(X)), dtype=np.int64)

    def accuracy(self, X: ArrayLike, truth: ArrayLike) -> float:
        """The part of the rows whose label is predicted right."""
        return float(np.mean(self.predict(X) == np.asarray(truth)))


@dataclass(frozen=True, eq=False)
class PateRun:
    """Everything a run made. `student`, `labelling` and `epsilon` may be published; `votes` may not.

    Attributes:
        votes: the exact histograms. Private.
        labelling: a label for each answered query.
        student: what learnt from them.
        epsilon: certified, whatever the data, at the `delta` asked for.
        delta: likewise.
    """

    votes: Votes
    labelling: Labelling
    student: Student
    epsilon: Bounds
    delta: float


def run_pate(
    teachers: TeacherEnsemble,
    aggregator: Aggregator,
    student: Classifier,
    queries: ArrayLike,
    *,
    delta: float,
    most_answers: int | None = None,
    rng: Rng | None = None,
) -> PateRun:
    """Run PATE: the teachers vote on public records, noisy winners become labels, and a student learns them.

    Each part is also a function of its own: `TeacherEnsemble.vote`, `GGNMax.label`, `Student.fit`.

    Args:
        teachers: see `TeacherEnsemble.fit`; for saved votes, use `read_votes`, `label` and `Student.fit`.
        aggregator: `GGNMax` or `ConfidentGGNMax`, calibrated or not.
        student: any scikit-learn classifier; a copy is trained.
        queries: public records, one row each.
        delta: at which delta the run is accounted.
        most_answers: stop after so many answers.
        rng: a generator for experiments; when omitted, noise that nobody can predict.

    Guarantees:
        1. `epsilon` holds for labels and student together, for neighbours that replace one private record.
    """
    votes = teachers.vote(queries)
    labelling = aggregator.label(votes, most_answers=most_answers, rng=rng)
    spent = labelling.epsilon(delta=delta)
    return PateRun(votes, labelling, Student.fit(student, queries, labelling), spent, delta)


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
