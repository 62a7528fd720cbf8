"""Our configuration objects as the reference library's, which compares them."""

from __future__ import annotations

from enum import Enum
from typing import Any

import icechunk

from icechunk_stream.config.fields import Settings

# Not every class of the reference library is public.
THEIRS: Any = icechunk._icechunk_python
_UNIONS = (
    "ManifestPreloadCondition",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ObjectStoreConfig",
)


def to_reference(value: Any) -> Any:
    if isinstance(value, Enum):
        return getattr(getattr(THEIRS, type(value).__name__), value.name)
    if isinstance(value, Settings):
        fields = {name: to_reference(getattr(value, name)) for name in value.KINDS}
        fields = {name: field for name, field in fields.items() if field is not None}
        return getattr(THEIRS, type(value).__name__)(**fields)
    if isinstance(value, tuple | list):
        return tuple(to_reference(item) for item in value)
    if isinstance(value, dict):
        return {key: to_reference(item) for key, item in value.items()}
    union, _, variant = type(value).__qualname__.rpartition(".")
    if union in _UNIONS:
        arguments = [to_reference(getattr(value, name)) for name in value.__match_args__]
        return _reference_variant(union, variant, arguments)
    return value


def _reference_variant(union: str, variant: str, arguments: list[Any]) -> Any:
    """The reference offers factories for some variants, and classes for others."""
    factory = {
        "Or": "or_conditions",
        "And": "and_conditions",
        "PathMatches": "path_matches",
        "NameMatches": "name_matches",
        "NumRefs": "num_refs",
        "True": "true",
        "False": "false",
    }.get(variant, variant)
    lists = [list(each) if isinstance(each, tuple) else each for each in arguments]
    return getattr(getattr(THEIRS, union), factory)(*lists)
