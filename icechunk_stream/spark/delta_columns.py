"""Rows as a Delta table takes them: names and types of their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Delta keeps these for itself, in tables without column mapping.
_FORBIDDEN = str.maketrans(dict.fromkeys(" ,;{}()\n\t=", "_"))
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def delta_names(names: Iterable[str], reserved: Iterable[str]) -> list[str]:
    """Names that a table may have, each once: Delta does not tell upper case from lower case."""
    taken = {name.casefold() for name in reserved}
    found = []
    for name in names:
        free = name.translate(_FORBIDDEN)
        while free.casefold() in taken:
            free = f"row_{free}"
        taken.add(free.casefold())
        found.append(free)
    return found


def storable(rows: pa.Table) -> pa.Table:
    """The rows with types that Delta has; columns of nothing but nulls without a type are gone."""
    kept = rows.select(
        [at for at, field in enumerate(rows.schema) if not types.is_null(field.type)]
    )
    schema = pa.schema([_storable_field(field) for field in kept.schema])
    return kept.cast(schema, safe=False)


def _storable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_storable_type(field.type)).with_nullable(True)


def _storable_type(given: pa.DataType) -> pa.DataType:
    """The type itself where Delta has it, else one that holds all its values.

    Spark counts microseconds, in durations too. A time without a zone counts as UTC, as in the
    arrays: the type that Delta has for it must be enabled by hand in tables that exist.
    """
    if given in _WIDER:
        return _WIDER[given]
    for is_such, make in _KINDS:
        if is_such(given):
            return make(given)
    return given


def _list(given: pa.DataType) -> pa.DataType:
    return pa.list_(_storable_field(given.value_field))


def _map(given: pa.DataType) -> pa.DataType:
    key = _storable_field(given.key_field).with_nullable(False)
    return pa.map_(key, _storable_field(given.item_field))


def _struct(given: pa.DataType) -> pa.DataType:
    return pa.struct([_storable_field(field) for field in given.fields])


def _is_any_list(given: pa.DataType) -> bool:
    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(is_such(given) for is_such in kinds)


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.DataType]], ...] = (
    (types.is_timestamp, lambda _: pa.timestamp("us", tz="UTC")),
    (types.is_time, lambda _: pa.string()),
    (types.is_duration, lambda _: pa.int64()),
    (types.is_date64, lambda _: pa.date32()),
    (types.is_decimal256, lambda _: pa.string()),
    (types.is_decimal, lambda given: pa.decimal128(given.precision, given.scale)),
    (types.is_dictionary, lambda given: _storable_type(given.value_type)),
    (_is_any_list, _list),
    (types.is_map, _map),
    (types.is_struct, _struct),
)
