# SPDX-License-Identifier: Apache-2.0
"""Make votes_250_teachers.npz: invented votes of 250 teachers on 400 queries with 10 classes.

    python tests/data/make_votes.py

Easy queries are near-unanimous, hard ones split between two or three classes; the mixture below has the look
of a digit classifier's ensemble: most largest counts above 200, about a tenth of the runner-up gaps below 60.
No real data went in. The seed is fixed, and a test checks that the file is what this makes.
"""

from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("votes_250_teachers.npz")
NUM_TEACHERS, NUM_QUERIES, NUM_CLASSES = 250, 400, 10
SEED = 20180224


def made() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)
    truth = rng.integers(NUM_CLASSES, size=NUM_QUERIES)
    # How sure the ensemble is of its favourite: mostly sure, with a tail of doubt.
    sure = np.where(rng.random(NUM_QUERIES) < 0.7, rng.beta(30, 2, NUM_QUERIES), rng.beta(3, 3, NUM_QUERIES))
    votes = np.empty((NUM_QUERIES, NUM_CLASSES), dtype=np.uint8)
    for row in range(NUM_QUERIES):
        others = rng.dirichlet(np.full(NUM_CLASSES, 0.3))
        probs = (1.0 - sure[row]) * others
        probs[truth[row]] += sure[row]
        votes[row] = rng.multinomial(NUM_TEACHERS, probs / probs.sum())
    return {"votes": votes, "labels": truth.astype(np.uint8)}


if __name__ == "__main__":
    np.savez_compressed(FILE, **made())
