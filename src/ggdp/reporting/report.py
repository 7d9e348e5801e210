# SPDX-License-Identifier: Apache-2.0
"""What a report of one run consists of, and the picture that every report has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ggdp.reporting.guarantee import Guarantee

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Picture = tuple[Callable[[], "Figure"], str]

SEEDED = (
    "The noise was drawn from a seed: whoever knows or guesses it can take the noise off again. This output "
    "is NOT private; what is proved below is true of a run with fresh noise."
)
NO_BOUND = "No upper bound could be certified."


@dataclass(frozen=True)
class Report:
    """One run, ready to be shown.

    Attributes:
        title: what was done.
        guarantee: what is promised; None where nothing is, for
        no_guarantee: this reason; empty where there is nothing to promise, because no data are involved.
        settings: everything the promise depends on.
        proved: what is certified, and how.
        estimated: what is not.
        warnings: what the reader must not miss.
        private: what must not be published, by name; shown in a box of its own.
        private_note: why.
        private_pictures: in the same box.
        pictures: drawn on demand, each with a caption.
    """

    title: str
    guarantee: Guarantee | None
    settings: Mapping[str, str]
    no_guarantee: str = NO_BOUND
    proved: tuple[str, ...] = ()
    estimated: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    private: Mapping[str, str] = field(default_factory=dict)
    private_note: str = ""
    private_pictures: tuple[Picture, ...] = ()
    pictures: tuple[Picture, ...] = ()


def detection_picture(promise: Guarantee | None) -> tuple[Picture, ...]:
    """What a guarantee leaves to an adversary; nothing where there is none."""
    if promise is None:
        return ()

    def drawn() -> "Figure":
        from ggdp.reporting.detection_figure import detection_figure

        return detection_figure(promise)

    return ((drawn, "What the guarantee leaves to a membership test: no test lies in the shaded region."),)
