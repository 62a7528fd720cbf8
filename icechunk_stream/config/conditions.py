"""Rules for preloading and splitting manifests: immutable, hashable, joined by ``|`` and ``&``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from icechunk_stream.config.fields import U32, U64, Immutable, check_int, check_text, offer_variants
from icechunk_stream.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence


class ManifestPreloadCondition(Immutable):
    """When a manifest is loaded as a session opens."""

    __slots__ = ()

    @staticmethod
    def or_conditions(conditions: Sequence[ManifestPreloadCondition]) -> PreloadOr:
        return PreloadOr(tuple(as_preload_condition(each) for each in conditions))

    @staticmethod
    def and_conditions(conditions: Sequence[ManifestPreloadCondition]) -> PreloadAnd:
        return PreloadAnd(tuple(as_preload_condition(each) for each in conditions))

    @staticmethod
    def path_matches(regex: str) -> PreloadPathMatches:
        """Matches arrays by their absolute path, as in ``/group/array``."""
        return PreloadPathMatches(regex)

    @staticmethod
    def name_matches(regex: str) -> PreloadNameMatches:
        """Matches arrays by the last part of their path."""
        return PreloadNameMatches(regex)

    @staticmethod
    def num_refs(from_refs: int | None, to_refs: int | None) -> PreloadNumRefs:
        """Matches manifests of at least ``from_refs`` and fewer than ``to_refs`` references."""
        return PreloadNumRefs(from_refs, to_refs)

    @staticmethod
    def true() -> PreloadTrue:
        return PreloadTrue()

    @staticmethod
    def false() -> PreloadFalse:
        return PreloadFalse()

    def __and__(self, other: ManifestPreloadCondition, /) -> PreloadAnd:
        return ManifestPreloadCondition.and_conditions([self, other])

    def __or__(self, other: ManifestPreloadCondition, /) -> PreloadOr:
        return ManifestPreloadCondition.or_conditions([self, other])


@dataclass(frozen=True, slots=True)
class PreloadOr(ManifestPreloadCondition):
    conditions: tuple[PreloadCondition, ...]


@dataclass(frozen=True, slots=True)
class PreloadAnd(ManifestPreloadCondition):
    conditions: tuple[PreloadCondition, ...]


@dataclass(frozen=True, slots=True)
class PreloadPathMatches(ManifestPreloadCondition):
    regex: str

    def __post_init__(self) -> None:
        check_text(self.regex, "the regex of path_matches")


@dataclass(frozen=True, slots=True)
class PreloadNameMatches(ManifestPreloadCondition):
    regex: str

    def __post_init__(self) -> None:
        check_text(self.regex, "the regex of name_matches")


@dataclass(frozen=True, slots=True)
class PreloadNumRefs(ManifestPreloadCondition):
    """``from_refs`` is inclusive, ``to_refs`` exclusive; None is no bound."""

    from_refs: int | None
    to_refs: int | None

    def __post_init__(self) -> None:
        for name, bound in (("from_refs", self.from_refs), ("to_refs", self.to_refs)):
            if bound is not None:
                check_int(U32, bound, f"num_refs: {name}")


@dataclass(frozen=True, slots=True)
class PreloadTrue(ManifestPreloadCondition):
    pass


@dataclass(frozen=True, slots=True)
class PreloadFalse(ManifestPreloadCondition):
    pass


PreloadCondition: TypeAlias = (
    PreloadOr
    | PreloadAnd
    | PreloadPathMatches
    | PreloadNameMatches
    | PreloadNumRefs
    | PreloadTrue
    | PreloadFalse
)


class ManifestSplitCondition(Immutable):
    """Which arrays a splitting rule is about."""

    __slots__ = ()
    AnyArray: ClassVar[type[SplitAnyArray]]

    @staticmethod
    def or_conditions(conditions: Sequence[ManifestSplitCondition]) -> SplitOr:
        return SplitOr(tuple(as_split_condition(each) for each in conditions))

    @staticmethod
    def and_conditions(conditions: Sequence[ManifestSplitCondition]) -> SplitAnd:
        return SplitAnd(tuple(as_split_condition(each) for each in conditions))

    @staticmethod
    def path_matches(regex: str) -> SplitPathMatches:
        """Matches arrays by their absolute path, as in ``/group/array``."""
        return SplitPathMatches(regex)

    @staticmethod
    def name_matches(regex: str) -> SplitNameMatches:
        """Matches arrays by the last part of their path."""
        return SplitNameMatches(regex)

    def __or__(self, other: ManifestSplitCondition, /) -> SplitOr:
        return ManifestSplitCondition.or_conditions([self, other])

    def __and__(self, other: ManifestSplitCondition, /) -> SplitAnd:
        return ManifestSplitCondition.and_conditions([self, other])


@dataclass(frozen=True, slots=True)
class SplitOr(ManifestSplitCondition):
    conditions: tuple[SplitCondition, ...]


@dataclass(frozen=True, slots=True)
class SplitAnd(ManifestSplitCondition):
    conditions: tuple[SplitCondition, ...]


@dataclass(frozen=True, slots=True)
class SplitPathMatches(ManifestSplitCondition):
    regex: str

    def __post_init__(self) -> None:
        check_text(self.regex, "the regex of path_matches")


@dataclass(frozen=True, slots=True)
class SplitNameMatches(ManifestSplitCondition):
    regex: str

    def __post_init__(self) -> None:
        check_text(self.regex, "the regex of name_matches")


@dataclass(frozen=True, slots=True)
class SplitAnyArray(ManifestSplitCondition):
    pass


SplitCondition: TypeAlias = SplitOr | SplitAnd | SplitPathMatches | SplitNameMatches | SplitAnyArray


class ManifestSplitDimCondition(Immutable):
    """Which dimension of an array a split size is for."""

    __slots__ = ()
    Axis: ClassVar[type[SplitAxis]]
    DimensionName: ClassVar[type[SplitDimensionName]]
    Any: ClassVar[type[SplitAnyDimension]]


@dataclass(frozen=True, slots=True)
class SplitAxis(ManifestSplitDimCondition):
    axis: int

    def __post_init__(self) -> None:
        check_int(U64, self.axis, "the axis of a split condition")


@dataclass(frozen=True, slots=True)
class SplitDimensionName(ManifestSplitDimCondition):
    regex: str

    def __post_init__(self) -> None:
        check_text(self.regex, "the dimension name of a split condition")


@dataclass(frozen=True, slots=True)
class SplitAnyDimension(ManifestSplitDimCondition):
    pass


SplitDimCondition: TypeAlias = SplitAxis | SplitDimensionName | SplitAnyDimension

# The names under which the reference library offers them.
offer_variants(
    ManifestPreloadCondition,
    {
        "Or": PreloadOr,
        "And": PreloadAnd,
        "PathMatches": PreloadPathMatches,
        "NameMatches": PreloadNameMatches,
        "NumRefs": PreloadNumRefs,
        "True": PreloadTrue,
        "False": PreloadFalse,
    },
)
offer_variants(
    ManifestSplitCondition,
    {
        "Or": SplitOr,
        "And": SplitAnd,
        "PathMatches": SplitPathMatches,
        "NameMatches": SplitNameMatches,
        "AnyArray": SplitAnyArray,
    },
)
offer_variants(
    ManifestSplitDimCondition,
    {"Axis": SplitAxis, "DimensionName": SplitDimensionName, "Any": SplitAnyDimension},
)


def as_preload_condition(value: object, where: str = "a preload condition") -> PreloadCondition:
    if isinstance(value, PreloadCondition):
        return value
    raise InvalidInputError(f"{where} must be a ManifestPreloadCondition, not {value!r}")


def as_split_condition(value: object, where: str = "a split condition") -> SplitCondition:
    if isinstance(value, SplitCondition):
        return value
    raise InvalidInputError(f"{where} must be a ManifestSplitCondition, not {value!r}")


def as_split_dim_condition(value: object, where: str) -> SplitDimCondition:
    if isinstance(value, SplitDimCondition):
        return value
    raise InvalidInputError(f"{where} must be a ManifestSplitDimCondition, not {value!r}")
