# SPDX-License-Identifier: Apache-2.0
"""PATE in one call: teachers vote, an aggregator publishes labels, a student learns from them."""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from ggdp.accounting import Bounds
from ggdp.distributions.generalized_gaussian import Rng
from ggdp.selection.aggregation import Aggregator, Labelling
from ggdp.selection.student import Student
from ggdp.selection.teachers import Classifier, TeacherEnsemble
from ggdp.selection.votes import Votes


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
    """Vote, aggregate, account, and train the student. Each step is also a function of its own.

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
