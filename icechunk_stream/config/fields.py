"""What each setting may hold: checked when a configuration is built, changed or decoded."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Self, TypeAlias, TypeVar, assert_never

from icechunk_stream.errors import InvalidInputError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IntRange:
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Flag:
    pass


@dataclass(frozen=True, slots=True)
class Text:
    pass


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few names; ``names`` maps the stored name to the member."""

    names: Mapping[str, Enum]


@dataclass(frozen=True, slots=True)
class Struct:
    """A nested group of settings; when merging, ``whole`` ones are replaced, others merged."""

    cls: type[Settings]
    whole: bool = False


class Shape(Enum):
    """Settings whose stored form has rules of its own."""

    PRELOAD_CONDITION = "preload_condition"
    SPLIT_SIZES = "split_sizes"
    OBJECT_STORE = "object_store"
    CONTAINERS = "containers"


@dataclass(frozen=True, slots=True)
class Shaped:
    shape: Shape
    check: Callable[[object, str], object]


Kind: TypeAlias = IntRange | Flag | Text | Choice | Struct | Shaped

U8 = IntRange(0, 2**8 - 1)
U16 = IntRange(0, 2**16 - 1)
U16_POSITIVE = IntRange(1, 2**16 - 1)
U32 = IntRange(0, 2**32 - 1)
I32 = IntRange(-(2**31), 2**31 - 1)
U64 = IntRange(0, 2**64 - 1)
U64_POSITIVE = IntRange(1, 2**64 - 1)


class Immutable:
    """Base of values that a copy may share, however deeply they are nested."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Settings:
    """Base of the mutable configuration classes: every assignment is checked.

    ``KINDS`` lists the stored settings in the order in which they are written.
    """

    __slots__ = ()
    KINDS: ClassVar[Mapping[str, Kind]] = {}
    REQUIRED: ClassVar[frozenset[str]] = frozenset()

    def __setattr__(self, name: str, value: object) -> None:
        kind = self.KINDS.get(name)
        if kind is not None:
            value = self._checked(name, kind, value)
        object.__setattr__(self, name, value)

    def _checked(self, name: str, kind: Kind, value: object) -> object:
        where = f"{type(self).__name__}.{name}"
        if value is None:
            if name in self.REQUIRED:
                raise InvalidInputError(f"{where} must not be None; give it a value")
            return None
        return check(kind, value, where)


def describe(settings: Settings, **instead: object) -> str:
    """A repr in which some settings are shown otherwise than they are."""
    shown = {name: getattr(settings, name) for name in settings.KINDS} | instead
    fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
    return f"{type(settings).__name__}({fields})"


def offer_variants(owner: type, variants: Mapping[str, type]) -> None:
    """Make classes known, also to repr and pickle, as attributes of the class they vary."""
    for name, variant in variants.items():
        variant.__name__ = name
        variant.__qualname__ = f"{owner.__name__}.{name}"
        setattr(owner, name, variant)


def check(kind: Kind, value: object, where: str) -> object:
    """The value, normalised; raises ``InvalidInputError`` if the setting cannot hold it."""
    match kind:
        case IntRange():
            return check_int(kind, value, where)
        case Text():
            return check_text(value, where)
        case Flag():
            return check_instance(bool, value, where)
        case Choice(names):
            return check_instance(type(next(iter(names.values()))), value, where)
        case Struct(cls):
            return check_instance(cls, value, where)
        case Shaped(_, check_shape):
            return check_shape(value, where)
        case _:
            assert_never(kind)


def check_int(kind: IntRange, value: object, where: str) -> int:
    if isinstance(value, bool):
        raise InvalidInputError(f"{where} must be an integer, not {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(f"{where} must be an integer, not {value!r}") from None
    if not kind.low <= number <= kind.high:
        raise InvalidInputError(f"{where} must be from {kind.low} to {kind.high}, not {number}")
    return number


def check_text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"{where} must be a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{where} must be valid Unicode: it has a surrogate") from None
    return str(value)


def check_text_map(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{where} must be a mapping, not {type(value).__name__}")
    return {
        check_text(key, f"a key of {where}"): check_text(text, f"{where}[{key!r}]")
        for key, text in value.items()
    }


def check_instance(cls: type[T], value: object, where: str) -> T:
    if not isinstance(value, cls):
        raise InvalidInputError(f"{where} must be a {cls.__name__}, not {type(value).__name__}")
    return value
