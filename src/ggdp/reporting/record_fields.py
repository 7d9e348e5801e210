# SPDX-License-Identifier: Apache-2.0
"""The fields of a record, each checked as it is read: what is damaged is refused by its name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ggdp import arguments
from ggdp.mechanisms import Adjacency


@dataclass(frozen=True)
class Fields:
    """One JSON object of a record.

    Attributes:
        content: the object.
        place: where in the record it stands, for messages; empty at the top.

    >>> Fields({"epsilon": {"upper": -1}}).inside("epsilon").real("upper", least=0.0)
    Traceback (most recent call last):
    ...
    ValueError: epsilon.upper must be a number in [0, inf), got -1
    """

    content: Mapping[str, Any]
    place: str = ""

    def __contains__(self, name: str) -> bool:
        return name in self.content

    def holds(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.content.get(name) is not None

    def value(self, name: str) -> Any:
        """The field as it is, for a caller that checks it; never null."""
        if not self.holds(name):
            raise ValueError(f"{self._named(name)} is missing" + " (null)" * (name in self))
        return self.content[name]

    def real(
        self,
        name: str,
        *,
        least: float = -math.inf,
        most: float = math.inf,
        above: float = -math.inf,
    ) -> float:
        """A finite number in [least, most], greater than `above`."""
        return arguments.real(self._named(name), self.value(name), least=least, most=most, above=above)

    def whole(self, name: str, *, least: int = 0, most: int | None = None) -> int:
        """A whole number in [least, most]."""
        return arguments.whole(self._named(name), self.value(name), least=least, most=most)

    def text(self, name: str) -> str:
        """Text."""
        return _text(self._named(name), self.value(name))

    def truth(self, name: str) -> bool:
        """True or false."""
        value = self.value(name)
        arguments.instance(self._named(name), value, bool)
        return bool(value)

    def adjacency(self) -> Adjacency:
        """The neighbouring relation."""
        value = self.value("adjacency")
        arguments.one_of(self._named("adjacency"), value, [str(one) for one in Adjacency])
        return Adjacency(value)

    def inside(self, name: str) -> "Fields":
        """The object under this name."""
        value = self.value(name)
        arguments.instance(self._named(name), value, dict)
        return Fields(value, self._named(name))

    def values(self, name: str) -> list[float]:
        """A list of finite numbers, at least one."""
        found = self._list(name)
        if not found:
            raise ValueError(f"{self._named(name)} must hold at least one number, got an empty list")
        return [arguments.real(f"{self._named(name)}[{at}]", one) for at, one in enumerate(found)]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        numbered = enumerate(self._list(name))
        return tuple(_text(f"{self._named(name)}[{position}]", one) for position, one in numbered)

    def listed(self, name: str) -> list["Fields"]:
        """A list of objects, at least one."""
        value = self._list(name)
        if not value:
            raise ValueError(f"{self._named(name)} must hold at least one object, got an empty list")
        for position, one in enumerate(value):
            arguments.instance(f"{self._named(name)}[{position}]", one, dict)
        return [Fields(one, f"{self._named(name)}[{position}]") for position, one in enumerate(value)]

    def _list(self, name: str) -> list[Any]:
        value = self.value(name)
        arguments.instance(self._named(name), value, list)
        return list(value)

    def _named(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def _text(name: str, value: object) -> str:
    arguments.instance(name, value, str)
    text = str(value)
    # JSON can spell half a character, which no file and no picture can hold.
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{name} must be text that can be written, got {arguments.shown(value)}")
    return text
