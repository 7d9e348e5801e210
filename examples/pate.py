# SPDX-License-Identifier: Apache-2.0
"""Label public pictures by a private vote of teachers (PATE). Needs scikit-learn: pip install ".[pate]".

Run it with: python examples/pate.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from ggdp.selection import Student, TeacherEnsemble, calibrate_ggnmax

EPSILON, DELTA, QUERIES, TEACHERS = 4.0, 1e-5, 60, 100

digits = load_digits()
order = np.random.default_rng(1).permutation(len(digits.target))
pictures, truth = digits.data[order] / 16.0, digits.target[order]
private, public, test = slice(0, 1200), slice(1200, 1200 + QUERIES), slice(1200 + QUERIES, None)

# Each teacher learns from its own part of the private data. One private record reaches one teacher, and so
# one vote of every query.
teachers = TeacherEnsemble.fit(
    GaussianNB(var_smoothing=0.05),
    pictures[private],
    truth[private],
    num_teachers=TEACHERS,
    num_classes=10,
    rng=np.random.default_rng(2),
)
votes = teachers.vote(
    pictures[public]
)  # private still: publish neither these nor anything computed from them

# Each query publishes the winner of its vote, after noise on every count. All queries share one promise.
aggregator = calibrate_ggnmax(beta=2.0, epsilon=EPSILON, delta=DELTA, times=QUERIES)
labelling = aggregator.label(votes)
cost = labelling.epsilon(delta=DELTA)
assert cost.upper <= EPSILON

# The student sees public pictures and published labels, so it costs nothing more and may be published.
student = Student.fit(GaussianNB(var_smoothing=0.05), pictures[public], labelling)
print(f"cost:                  epsilon <= {cost.upper:.4f} at delta = {DELTA}")
print(f"labels that are right: {labelling.accuracy(truth[public]):.0%}")
print(f"student's accuracy:    {student.accuracy(pictures[test], truth[test]):.0%}")
