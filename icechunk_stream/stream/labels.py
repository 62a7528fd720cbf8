"""Labels that a user lists, as an Arrow array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.errors import LayoutError


def arrow_labels(labels: Any) -> pa.Array:  # noqa: ANN401 - whatever numpy or Arrow understand
    """A list, numpy or Arrow array, index or coordinate variable as one Arrow array."""
    if isinstance(labels, pa.ChunkedArray):
        return labels.combine_chunks()
    if isinstance(labels, pa.Array):
        return labels
    if isinstance(labels, str):
        raise LayoutError(f"the labels {labels!r} are one string: give a list of labels")
    values = np.asarray(labels) if hasattr(labels, "__array__") else list(labels)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        message = f"no labels are {type(labels).__name__} like {values[:3]!r}: give a flat list of"
        raise LayoutError(f"{message} texts, numbers or times of one kind ({error})") from error


def check_labels(labels: pa.Array) -> None:
    """Refuse labels that are empty, null, NaN, twice the same or of no type that labels have."""
    if not _is_label_type(labels.type):
        message = f"the labels are of type {labels.type}: use texts, numbers, dates or times"
        raise LayoutError(message)
    if not len(labels):
        raise LayoutError("the list of labels is empty: a fixed dimension needs one or more")
    if labels.null_count or _nans(labels):
        raise LayoutError("a label is null or NaN: give every cell of the dimension a label")
    counts = pc.value_counts(labels)
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        message = f"{len(twice)} labels are there twice or more, {twice[0]['values']} is one"
        raise LayoutError(f"{message}: labels of a dimension are distinct")


def _is_label_type(type: pa.DataType) -> bool:
    checks = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_timestamp,
        pa.types.is_date,
    )
    return any(check(type) for check in checks)


def _nans(labels: pa.Array) -> bool:
    return pa.types.is_floating(labels.type) and bool(pc.any(pc.is_nan(labels)).as_py())
