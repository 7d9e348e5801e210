# SPDX-License-Identifier: Apache-2.0
"""The pipeline on scikit-learn's digits, and each of its steps."""

import functools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from ggdp import Gaussian, secure_generator
from ggdp.selection import GGNMax, Student, TeacherEnsemble, calibrate_ggnmax, run_pate

CLASSIFIER = LogisticRegression(max_iter=200)
NUM_TEACHERS = 50


@functools.lru_cache
def digits():
    data = load_digits()
    order = np.random.default_rng(3).permutation(len(data.target))
    return (data.data / 16.0)[order], data.target[order]


@functools.lru_cache
def teachers():
    X, y = digits()
    return TeacherEnsemble.fit(
        CLASSIFIER,
        X[:1000],
        y[:1000],
        num_teachers=NUM_TEACHERS,
        num_classes=10,
        rng=np.random.default_rng(1),
    )


def test_parts_are_disjoint_equal_and_complete():
    parts = teachers().parts
    assert [len(part) for part in parts] == [20] * NUM_TEACHERS
    assert sorted(np.concatenate(parts).tolist()) == list(range(1000))


def test_every_teacher_votes_once_on_every_query():
    X, _ = digits()
    votes = teachers().vote(X[1000:1200])
    assert votes.counts.shape == (200, 10)
    assert votes.num_teachers == NUM_TEACHERS


def test_votes_are_the_predictions_counted():
    X, _ = digits()
    votes = teachers().vote(X[1000:1003])
    for row in range(3):
        predicted = [int(teacher.predict(X[1000 + row : 1001 + row])[0]) for teacher in teachers().teachers]
        np.testing.assert_array_equal(votes.counts[row], np.bincount(predicted, minlength=10))


def test_replacing_a_record_retrains_one_teacher_only():
    X, y = (array[:200].copy() for array in digits())
    changed = X.copy()
    changed[17] = X[18]
    ensembles = [
        TeacherEnsemble.fit(
            GaussianNB(), data, y, num_teachers=10, num_classes=10, rng=np.random.default_rng(5)
        )
        for data in (X, changed)
    ]
    differs = [
        not np.array_equal(one.theta_, other.theta_)
        for one, other in zip(ensembles[0].teachers, ensembles[1].teachers, strict=True)
    ]
    assert sum(differs) == 1
    assert 17 in ensembles[0].parts[differs.index(True)]


@pytest.mark.parametrize(("beta", "least"), [(1.5, 0.6), (2.0, 0.6)])
def test_the_pipeline_teaches_a_student_within_its_budget(beta, least):
    X, y = digits()
    aggregator = calibrate_ggnmax(beta=beta, epsilon=10.0, delta=1e-5, times=200)
    run = run_pate(
        teachers(), aggregator, CLASSIFIER, X[1000:1200], delta=1e-5, rng=np.random.default_rng(11)
    )
    assert 9.99 < run.epsilon.upper <= 10.0
    assert run.labelling.num_answered == 200
    assert run.labelling.accuracy(y[1000:1200]) > least
    assert run.student.accuracy(X[1200:], y[1200:]) > least


def test_teachers_in_two_workers_are_those_of_one_and_report_progress():
    X, y = (array[:200] for array in digits())
    seen = []
    both = [
        TeacherEnsemble.fit(
            GaussianNB(),
            X,
            y,
            num_teachers=4,
            num_classes=10,
            rng=np.random.default_rng(5),
            n_jobs=n_jobs,
            on_progress=lambda ready, total: seen.append((ready, total)),
        )
        for n_jobs in (1, 2)
    ]
    np.testing.assert_array_equal(both[0].vote(X).counts, both[1].vote(X).counts)
    assert seen == [(ready, 4) for ready in (1, 2, 3, 4)] * 2


def test_a_part_with_a_single_label_still_votes():
    X = np.arange(8.0)[:, None]
    ensemble = TeacherEnsemble.fit(
        LogisticRegression(), X, np.ones(8), num_teachers=4, num_classes=2, rng=secure_generator()
    )
    np.testing.assert_array_equal(ensemble.vote(X).counts, np.tile([0, 4], (8, 1)))


def test_a_student_needs_two_classes():
    X, _ = digits()
    votes = teachers().vote(X[1000:1005])
    labelling = GGNMax(Gaussian(0.1)).label(votes, most_answers=1, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="at least two classes, got 1 answers of 1"):
        Student.fit(CLASSIFIER, X[1000:1005], labelling)
    with pytest.raises(ValueError, match="queries must be the 5 labelled ones, got 4"):
        Student.fit(CLASSIFIER, X[1000:1004], labelling)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_teachers": 9}, "num_teachers must be a whole number in"),
        ({"num_classes": 1}, "num_classes must be"),
        ({"y": np.full(8, 2)}, r"y must hold one whole number in \[0, 2\)"),
        ({"y": np.full(8, 0.5)}, "y must hold one whole number"),
        ({"y": np.zeros(7)}, "X and y must have equal length, got 8 and 7"),
    ],
)
def test_wrong_training_data_are_refused(changed, message):
    given = {"X": np.zeros((8, 1)), "y": np.arange(8) % 2, "num_teachers": 2, "num_classes": 2, **changed}
    with pytest.raises(ValueError, match=message):
        TeacherEnsemble.fit(CLASSIFIER, **given, rng=np.random.default_rng(1))
