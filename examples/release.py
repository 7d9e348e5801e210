# SPDX-License-Identifier: Apache-2.0
"""Release a small table: find the least noise for a promise, add it, and say how far off the numbers may be.

Run it with: python examples/release.py
"""

from ggdp import AdditiveNoise, Composed, best_noise, epsilon, release

EPSILON, DELTA = 1.0, 1e-6

# How many readers each branch of a library had, on each of ten days. A reader visits one branch a day, so
# one person changes at most one count of a day, by one. All ten days share one promise.
days = [{"North": 412 + day, "South": 138 - day, "West": 967 + 3 * day} for day in range(10)]

best = best_noise(epsilon=EPSILON, delta=DELTA, steps=len(days))
mechanism = AdditiveNoise.histogram(best.noise, grid=1)  # what leaves are whole numbers

# What all ten releases cost together. `upper` is the number to publish: the true epsilon is not larger.
cost = epsilon(Composed(mechanism, times=len(days)), delta=DELTA)
assert cost.upper <= EPSILON

within = float(best.noise.isf(0.025))  # half of the interval that holds 95% of the noise
print(f"noise: beta = {best.beta:.2f}, standard deviation {best.noise.std:.2f}")
print(f"       {best.less_than_laplace:.0%} under Laplace, {best.less_than_gaussian:.0%} under Gaussian")
print(f"cost:  epsilon <= {cost.upper:.6f} at delta = {DELTA}")
print(f"error: 95% of the counts are within {within:.0f} of the truth\n")

for number, counts in enumerate(days, start=1):
    noisy = release(mechanism, list(counts.values()))  # fresh noise that nobody can predict
    print(f"day {number:2}", dict(zip(counts, noisy, strict=True)))
