# SPDX-License-Identifier: Apache-2.0
"""A histogram of sampled losses that is filled in chunks: memory does not grow with their number."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ggdp.numerics import Array

if TYPE_CHECKING:
    from concurrent.futures import Future

LossSampler = Callable[[int, np.random.Generator], Array]
"""(count, rng) -> that many independent losses log P/Q at outcomes drawn from P; plus infinity is one."""

_CHUNK = 1 << 20
_PILOT = 1 << 16
_MESH = 1.0 / 256.0  # width of a bin, in standard deviations
_MOST_BINS = 1 << 22
_LEAST_WITH_BAR = 10_000_000  # samples from which on a progress bar is shown


@dataclass(frozen=True)
class LossHistogram:
    """Counts of losses nearest to i * mesh, i = -radius ... radius, and of those beyond.

    Attributes:
        counts: the 2 radius + 1 bins, lowest first; losses below the range are counted in the first.
        above: losses beyond the last bin, infinite ones included.
        below: losses before the first bin.
        mean_residual: mean of loss - nearest grid point, over the losses inside.
        num_samples: how many were drawn.
    """

    mesh: float
    radius: int
    counts: NDArray[np.int64]
    above: int
    below: int
    mean_residual: float
    num_samples: int

    @property
    def half_width(self) -> float:
        """Losses up to this size have a bin."""
        return (self.radius + 0.5) * self.mesh


def pilot_grid(sampler: LossSampler, rng: np.random.Generator) -> tuple[float, float]:
    """(mesh, half width) of the histogram, from a small sample that is used for nothing else."""
    losses = draw(sampler, _PILOT, rng)
    finite = losses[np.isfinite(losses)]
    spread = float(finite.std()) if len(finite) else 0.0
    reach = 2.0 * float(np.abs(finite).max(initial=0.0))
    mesh = max(_MESH * spread, 2.0 * reach / _MOST_BINS)
    return (mesh, reach + mesh) if mesh > 0.0 else (1e-9, 1e-6)


def draw(sampler: LossSampler, count: int, rng: np.random.Generator) -> Array:
    """Losses drawn from a sampler, and checked.

    Raises:
        ValueError: the sampler returned another number of them, or NaN.
    """
    losses = np.asarray(sampler(count, rng), dtype=np.float64)
    if losses.shape != (count,) or np.isnan(losses).any():
        raise ValueError(
            f"sampler must return {count} privacy losses, none of them NaN, got shape {losses.shape}"
        )
    return losses


def histogram(
    sampler: LossSampler,
    num_samples: int,
    mesh: float,
    half_width: float,
    rng: np.random.Generator,
    *,
    progress: bool | None,
    workers: int,
) -> LossHistogram:
    """Draw in chunks, each with its own stream, and count; an interrupt keeps what is counted so far."""
    radius = max(round(half_width / mesh - 0.5), 1)
    sizes = [_CHUNK] * (num_samples // _CHUNK) + ([num_samples % _CHUNK] if num_samples % _CHUNK else [])
    counts = np.zeros(2 * radius + 1, dtype=np.int64)
    above = below = drawn = 0
    residuals = 0.0
    shown = progress if progress is not None else sys.stderr.isatty() and num_samples >= _LEAST_WITH_BAR
    with _bar(shown, num_samples) as advance:
        tasks = zip(sizes, rng.spawn(len(sizes)), strict=True)
        for chunk in _in_order(
            lambda size, stream: _count(sampler, size, stream, mesh, radius), tasks, workers
        ):
            counts += chunk.counts
            above, below, drawn = above + chunk.above, below + chunk.below, drawn + chunk.num_samples
            residuals += chunk.mean_residual * int(chunk.counts.sum())
            advance(chunk.num_samples)
    inside = max(int(counts.sum()) - below, 1)
    return LossHistogram(mesh, radius, counts, above, below, residuals / inside, drawn)


def _count(
    sampler: LossSampler, size: int, rng: np.random.Generator, mesh: float, radius: int
) -> LossHistogram:
    losses = draw(sampler, size, rng)
    above = losses > (radius + 0.5) * mesh
    below = losses < -(radius + 0.5) * mesh
    losses = losses[~(above | below)]
    bins = np.rint(losses / mesh)
    counts = np.bincount(bins.astype(np.int64) + radius, minlength=2 * radius + 1)[: 2 * radius + 1]
    too_low = int(below.sum())
    residual = float((losses - bins * mesh).sum()) / max(len(losses) + too_low, 1)
    counts[0] += too_low
    return LossHistogram(mesh, radius, counts, int(above.sum()), too_low, residual, size)


def _in_order(
    work: Callable[[int, np.random.Generator], LossHistogram],
    tasks: Iterator[tuple[int, np.random.Generator]],
    workers: int,
) -> Iterator[LossHistogram]:
    """Results in the order of the tasks, with at most two waiting per worker; an interrupt ends them."""
    from concurrent.futures import ThreadPoolExecutor  # here, as importing it costs every user of the package

    waiting: deque[Future[LossHistogram]] = deque()
    any_done = False
    with ThreadPoolExecutor(workers) as pool:
        try:
            for size, stream in tasks:
                waiting.append(pool.submit(work, size, stream))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
                    any_done = True
        except KeyboardInterrupt:
            for future in waiting:
                future.cancel()
            if not any_done:
                raise
            return
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _bar(shown: bool, total: int) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("losses"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("losses", total=total)
        yield lambda count: progress.update(task, advance=count)
