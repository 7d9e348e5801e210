# SPDX-License-Identifier: Apache-2.0
"""docs/opacus.md: what it says of Opacus is so."""


def test_the_lengths_named_lose_a_batch_in_opacus():
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    short = [
        n for n in range(1, 106) if len(UniformWithReplacementSampler(num_samples=9, sample_rate=1 / n)) < n
    ]
    assert short == [93, 99, 105]
