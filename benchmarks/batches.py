# SPDX-License-Identifier: Apache-2.0
"""Epsilon and CPU seconds of batches of every kind at settings of DP-SGD, beside dp_accounting.

python benchmarks/batches.py            # some minutes, most of them dp_accounting's
python benchmarks/batches.py --own      # ggdp alone
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

from ggdp import (
    AdditiveNoise,
    Adjacency,
    Composed,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    Shuffled,
    TruncatedPoisson,
    epsilon,
)

DELTA = 1e-6
RECORDS, BATCH = 50_000, 256
EPOCH = RECORDS // BATCH


def timed(ask: Callable[[], str]) -> str:
    """What was answered and the CPU seconds it took."""
    start = time.process_time()
    try:
        found = ask()
    except (ValueError, ArithmeticError, NotImplementedError) as error:
        found = f"refused ({type(error).__name__})"
    return f"{found:>34} {time.process_time() - start:8.2f} s"


def google(event: object) -> str:
    """Epsilon of dp_accounting's accountant of privacy loss distributions."""
    from dp_accounting import UnsupportedEventError
    from dp_accounting.pld import PLDAccountant

    try:
        return f"{PLDAccountant().compose(event).get_epsilon(DELTA):.6f}"
    except UnsupportedEventError:
        return "refused"


def main() -> None:
    """Print one line for every kind of batch, noise and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--own", action="store_true", help="leave dp_accounting out")
    own = parser.parse_args().own
    for std in (0.7, 1.0, 2.0):
        for epochs in (1, 5, 50):
            fixed = partial(FixedSizeSampled, AdditiveNoise(Gaussian(std=std)), BATCH, RECORDS)
            inner, steps, rate = AdditiveNoise(Gaussian(std=std)), epochs * EPOCH, BATCH / RECORDS
            replace = Adjacency.REPLACE
            rows = {
                "poisson": (Composed(PoissonSampled(inner, rate), times=steps), None),
                "truncated at 400": (
                    Composed(TruncatedPoisson(inner, rate, 400, RECORDS), times=steps),
                    None,
                ),
                "fixed size": (Composed(fixed(), times=steps), None),
                "fixed size, replace": (
                    Composed(fixed(), times=steps),
                    replace,
                ),
                "with replacement": (
                    Composed(fixed(replacement=True), times=steps),
                    None,
                ),
                "allocation": (Composed(RandomAllocation(inner, EPOCH), times=epochs), None),
                "shuffled": (Composed(Shuffled(inner, EPOCH), times=epochs), None),
            }
            print(f"\nstd {std:g}, {epochs} epochs of {EPOCH} steps")
            for name, (mechanism, adjacency) in rows.items():

                def ask(mechanism=mechanism, adjacency=adjacency) -> str:  # type: ignore[no-untyped-def]
                    found = epsilon(mechanism, delta=DELTA, adjacency=adjacency)
                    return f"[{found.lower:.6f}, {found.upper:.6f}]"

                print(f"{name:22} {timed(ask)}")
            if not own:
                from dp_accounting import dp_event

                noise = dp_event.GaussianDpEvent(std)
                events = {
                    "google poisson": dp_event.PoissonSampledDpEvent(rate, noise),
                    "google truncated": dp_event.TruncatedSubsampledGaussianDpEvent(RECORDS, rate, 400, std),
                    "google fixed size": dp_event.SampledWithoutReplacementDpEvent(RECORDS, BATCH, noise),
                }
                for name, event in events.items():
                    whole = dp_event.SelfComposedDpEvent(event, steps)
                    print(f"{name:22} {timed(lambda whole=whole: google(whole))}")


if __name__ == "__main__":
    main()
