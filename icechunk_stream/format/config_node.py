"""A place in a stored configuration: typed access to its value, and errors that say where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from icechunk_stream.errors import ErrorKind, FormatError

if TYPE_CHECKING:
    from icechunk_stream.config.fields import IntRange


@dataclass(frozen=True, slots=True)
class Plain:
    """A YAML scalar without quotes: what it means depends on what is expected there."""

    text: str


@dataclass(frozen=True, slots=True)
class Tagged:
    """One variant of a choice, with what it holds."""

    variant: str
    value: Tree


Tree: TypeAlias = "bool | int | float | str | Plain | Tagged | list[Tree] | dict[str, Tree] | None"

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_FLAGS = {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_INT = re.compile(
    r"(?P<sign>[-+]?)(?:(?P<d>0|[1-9][0-9]*)|0x(?P<x>[0-9a-fA-F]+)|0o(?P<o>[0-7]+)|0b(?P<b>[01]+))"
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BASES = {"d": 10, "x": 16, "o": 8, "b": 2}
# More digits than any setting has; converting very many takes long.
_MAX_DIGITS = 64


def resolve(scalar: Plain) -> bool | int | float | str | None:
    """The scalar's value where nothing says what it should be."""
    if scalar.text in _NULLS:
        return None
    if scalar.text in _FLAGS:
        return _FLAGS[scalar.text]
    number = _parse_int(scalar.text)
    if number is not None:
        return number
    if len(scalar.text) <= _MAX_DIGITS and _FLOAT.fullmatch(scalar.text):
        return float(scalar.text)
    return scalar.text


def _parse_int(text: str) -> int | None:
    match = _INT.fullmatch(text) if len(text) <= _MAX_DIGITS else None
    if match is None:
        return None
    base, digits = next((base, match[base]) for base in _BASES if match[base] is not None)
    return int(match["sign"] + digits, _BASES[base])


@dataclass(frozen=True, slots=True)
class Node:
    """``tagged`` says how the document spells a choice: by a tag, or by a map of one entry."""

    value: Tree
    key: str
    tagged: bool
    path: str = ""

    @property
    def is_null(self) -> bool:
        return self.value is None or (isinstance(self.value, Plain) and self.value.text in _NULLS)

    def integer(self, kind: IntRange) -> int:
        number = _parse_int(self.value.text) if isinstance(self.value, Plain) else self.value
        if not isinstance(number, int) or isinstance(number, bool):
            raise self.error("must be an integer")
        if not kind.low <= number <= kind.high:
            raise self.error(f"must be from {kind.low} to {kind.high}, not {number}")
        return number

    def flag(self) -> bool:
        flag = _FLAGS.get(self.value.text) if isinstance(self.value, Plain) else self.value
        if not isinstance(flag, bool):
            raise self.error("must be true or false")
        return flag

    def text(self) -> str:
        text = self.value.text if isinstance(self.value, Plain) else self.value
        if not isinstance(text, str):
            raise self.error("must be a string")
        return text

    def items(self) -> list[Node]:
        if not isinstance(self.value, list):
            raise self.error("must be a list")
        return [self._child(item, f"[{index}]") for index, item in enumerate(self.value)]

    def entries(self) -> dict[str, Node]:
        if not isinstance(self.value, dict):
            raise self.error("must be a map")
        return {
            name: self._child(item, f".{name}" if self.path else name)
            for name, item in self.value.items()
        }

    def field(self, name: str) -> Node:
        """An entry that has to be there."""
        entry = self.entries().get(name)
        if entry is None:
            raise self.error(f"has no {name!r}")
        return entry

    def variant(self) -> tuple[str, Node]:
        """The name of the chosen variant and what it holds, null for a bare name."""
        match self.value:
            case Tagged(name, value):
                return name, self._child(value, f"!{name}")
            case Plain(name) | str(name):
                return name, self._child(None, "")
            case dict() if not self.tagged and len(self.value) == 1:
                return next(iter(self.entries().items()))
            case _:
                raise self.error("must be one of a few variants")

    def error(self, reason: str) -> FormatError:
        where = self.path or "the document"
        message = f"invalid configuration: {where} {reason}"
        return FormatError(message, ErrorKind.CONFIG_DESERIALIZATION, key=self.key)

    def _child(self, value: Tree, step: str) -> Node:
        return Node(value, self.key, self.tagged, self.path + step)
