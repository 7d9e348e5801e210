# SPDX-License-Identifier: Apache-2.0
"""The student: a model that sees public queries and published labels only, and so may be published itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ggdp.selection.aggregation import Labelling
from ggdp.selection.teachers import Classifier


@dataclass(frozen=True, eq=False)
class Student:
    """A classifier fitted on the answered queries. Post-processing: it costs nothing beyond the labels."""

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
