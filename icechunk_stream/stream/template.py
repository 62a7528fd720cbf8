"""A template dataset of xarray as dimensions and variables of a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.dimensions import LABELS_PER_CHUNK, Coordinate, Dimension, fixed
from icechunk_stream.stream.variables import Variable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import xarray as xr


def template_variables(
    dataset: xr.Dataset, names: Sequence[str], rechunked: Collection[str]
) -> dict[str, Variable]:
    """Variables with the types, attributes and encodings of the template's.

    Chunks along the dimensions in ``rechunked`` are left to the layout.
    """
    missing = [name for name in names if name not in dataset.variables]
    if missing:
        has = ", ".join(map(str, dataset.data_vars))
        raise LayoutError(f"the template has no variable {missing[0]!r}: it has {has}")
    _check_coordinates(dataset, names)
    return {name: _variable(name, dataset.variables[name], rechunked) for name in names}


def template_dims(
    dataset: xr.Dataset, variables: Mapping[str, Variable], given: Mapping[str, Dimension]
) -> dict[str, Dimension]:
    """Dimensions of the variables: as given, else fixed to the template's labels."""
    used = dict.fromkeys(dim for variable in variables.values() for dim in variable.dims or ())
    for name in given:
        if name not in used:
            has = ", ".join(used)
            message = f"the template's variables lack the dimension {name!r}: they have {has}"
            raise LayoutError(f"{message}; add it to the template, or leave it out of dims")
    return {dim: _dimension(dataset, dim, given.get(dim)) for dim in used}


def _check_coordinates(dataset: xr.Dataset, names: Sequence[str]) -> None:
    others = [name for name in dataset.coords if name not in dataset.dims and name not in names]
    if others:
        message = f"the template has the coordinate {others[0]!r}, which is no dimension"
        raise LayoutError(
            f"{message}: list it in variables if rows have it, or drop it with drop_vars and write"
            " it once with xarray"
        )


def _variable(name: str, like: xr.Variable, rechunked: Collection[str]) -> Variable:
    encoding = like.encoding
    dims = tuple(map(str, like.dims))
    chunks = {dim: size for dim, size in _chunks(like).items() if dim not in rechunked}
    try:
        return Variable(
            dtype=_dtype(like),
            dims=dims,
            fill_value=encoding.get("_FillValue", encoding.get("missing_value")),
            scale_factor=encoding.get("scale_factor"),
            add_offset=encoding.get("add_offset"),
            units=encoding.get("units"),
            calendar=encoding.get("calendar"),
            attrs=_attributes(like),
            chunks=chunks,
            shards=dict(zip(dims, encoding.get("shards") or (), strict=False)),
            compressors=encoding.get("compressors", "auto"),
            filters=encoding.get("filters", "auto"),
        )
    except LayoutError as error:
        error.add_note(f"in the template's variable {name!r}")
        raise


def _dimension(dataset: xr.Dataset, dim: str, given: Dimension | None) -> Dimension:
    like = dataset.variables.get(dim)
    if like is None and given is None:
        message = f"the template has no labels for the dimension {dim!r}"
        raise LayoutError(f"{message}: name it in dims, or give the template a coordinate")
    if like is None:
        assert given is not None
        return given
    dimension = fixed(like.values) if given is None else given
    return replace(dimension, coordinate=_coordinate(dimension.coordinate, like))


def _coordinate(own: Coordinate, like: xr.Variable) -> Coordinate:
    """What the dimension leaves open is the template's."""
    chunk = like.encoding.get("chunks") or like.encoding.get("chunksizes") or (LABELS_PER_CHUNK,)
    return replace(
        own,
        dtype=own.dtype or _dtype(like),
        units=own.units or like.encoding.get("units"),
        calendar=own.calendar or like.encoding.get("calendar"),
        chunk=int(chunk[0]),
        attrs=own.attrs or _attributes(like),
    )


def _dtype(like: xr.Variable) -> Any:  # noqa: ANN401 - checked where it goes
    return like.encoding.get("dtype", like.dtype)


def _attributes(like: xr.Variable) -> dict[str, Any]:
    return {str(key): value for key, value in like.attrs.items()}


def _chunks(like: xr.Variable) -> dict[str, int]:
    stored = like.encoding.get("chunks") or like.encoding.get("chunksizes")
    if stored:
        return {str(dim): int(size) for dim, size in zip(like.dims, stored, strict=True)}
    return {str(dim): sizes[0] for dim, sizes in like.chunksizes.items()}
