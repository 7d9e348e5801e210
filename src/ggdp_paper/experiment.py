# SPDX-License-Identifier: Apache-2.0
"""What every figure and table has: cells to run, numbers, findings beside the paper's, pictures."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING, Any

from ggdp_paper.sweep import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings = Mapping[str, Any]
Numbers = dict[str, Any]


class Agreement(StrEnum):
    """Whether our numbers agree with a statement of the paper."""

    AGREES = "agrees"
    PARTLY = "partly"
    DIFFERS = "differs"
    UNDECIDED = "undecided"

    @classmethod
    def of(cls, holds: bool) -> "Agreement":
        """Agreement with a statement that holds or does not."""
        return cls.AGREES if holds else cls.DIFFERS

    @classmethod
    def of_all(cls, verdicts: Iterable[bool | None]) -> "Agreement":
        """Agreement with a statement about several settings, where None is a setting that cannot tell.

        >>> [str(Agreement.of_all(found)) for found in ([True, None], [None], [False, None], [])]
        ['partly', 'undecided', 'differs', 'undecided']
        """
        found = set(verdicts)
        if True in found:
            return cls.AGREES if found == {True} else cls.PARTLY
        return cls.DIFFERS if False in found else cls.UNDECIDED


@dataclass(frozen=True)
class Finding:
    """Our answer to one statement: what was found, in words made of the numbers, and whether it agrees."""

    found: str
    agreement: Agreement


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and the reason why we differ from it, where it is known that we do."""

    says: str
    because: str = ""


@dataclass(frozen=True)
class Config:
    """One figure's configuration, as its JSON file holds it.

    Attributes:
        title: what the figure shows.
        statements: what the paper says of it, by a key that the findings share.
        settings: of the full run.
        quick: what a quick run has otherwise.
    """

    title: str
    statements: Mapping[str, Statement]
    settings: Settings
    quick: Settings

    def chosen(self, quick: bool) -> dict[str, Any]:
        """The settings of a full or of a quick run."""
        return {**self.settings, **(self.quick if quick else {})}

    @property
    def has_quick_run(self) -> bool:
        """Whether a quick run is another run than the full one."""
        return self.chosen(True) != self.chosen(False)


@functools.cache
def config_of(name: str) -> Config:
    """Read the configuration that ships with the package."""
    source = resources.files("ggdp_paper") / "configs" / f"{name}.json"
    found = json.loads(source.read_text())
    statements = {key: Statement(**entry) for key, entry in found["statements"].items()}
    return Config(found["title"], statements, found["settings"], found["quick"])


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A figure or table: four functions between its settings and its picture, each pure.

    Attributes:
        name: as the command line calls it; also the name of its configuration.
        cells: what has to run.
        numbers: what the figure shows, from the settings and the results of the cells in their order.
        headline: the few numbers that `expected/` holds, by name.
        findings: our answer to each statement of the paper.
        pictures: drawn from settings and numbers alone; a name for each.
        files: data that must be there, relative to the data folder; their digests are settings of every cell.
        folders: data that its cells read, the first of these folders that is in the data folder. Its digest
            names the folder where the cells are kept, and is no part of the cells or of their seeds.
        packages: optional packages that must be installed.
        kept_with: the folder of its cells, where figures share them.
        needs_record: whether, where no cell can run, it is made of the record that `measured` names.
    """

    name: str
    cells: Callable[[Settings], list[Cell]]
    numbers: Callable[[Settings, list[dict[str, Any]]], Numbers]
    headline: Callable[[Numbers], dict[str, float]]
    findings: Callable[[Settings, Numbers], dict[str, Finding]]
    pictures: Callable[[Settings, Numbers], dict[str, "Figure"]]
    files: Callable[[Settings], tuple[str, ...]] = lambda settings: ()
    folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    kept_with: str = ""
    needs_record: bool = False

    @property
    def config(self) -> Config:
        """Its configuration."""
        return config_of(self.name)
