"""The group that rows go to: what a layout needs is made, and what exists is honoured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from icechunk_stream.errors import LayoutError
from icechunk_stream.format.nodes import ArrayNode, GroupNode
from icechunk_stream.format.paths import canonical
from icechunk_stream.stream.axes import Axis
from icechunk_stream.stream.cf_attributes import encoding_of
from icechunk_stream.stream.dimensions import Fixed, Regular
from icechunk_stream.stream.grid_places import grid_labels
from icechunk_stream.stream.known import Form, Known
from icechunk_stream.stream.making import (
    coordinate_spec,
    make_array,
    make_groups,
    variable_spec,
)
from icechunk_stream.stream.targets import ArrayTarget

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from zarr import Array

    from icechunk_stream.session import Session
    from icechunk_stream.stream.dimensions import Dimension
    from icechunk_stream.stream.encodings import Encoding
    from icechunk_stream.stream.layout import Rows


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """Where the rows of a layout go, as of one snapshot; each axis has its coordinate array."""

    axes: tuple[Axis, ...]
    coordinates: tuple[ArrayTarget, ...]
    targets: tuple[ArrayTarget, ...]


@dataclass(frozen=True, slots=True)
class _Stored:
    """An array that exists, as its document says."""

    session: Session
    node: ArrayNode
    form: Form

    @property
    def path(self) -> str:
        return self.node.path

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.array_length for axis in self.node.shape)

    @property
    def dims(self) -> tuple[str, ...]:
        return self.form.dims

    @property
    def encoding(self) -> Encoding:
        return self.form.encoding

    @property
    def array(self) -> Array[Any]:
        return zarr.open_array(self.session.store, path=self.path, mode="r+")

    def target(self, column: str) -> ArrayTarget:
        return ArrayTarget(
            path=self.path,
            column=column,
            dims=self.dims,
            document=bytes(self.node.user_data),
            shape=self.shape,
            unit=self.form.unit,
            encoding=self.encoding,
        )


def open_group(
    session: Session,
    layout: Rows,
    group: str,
    schema: pa.Schema | None = None,
    known: Known | None = None,
) -> OpenGroup:
    """The arrays of a layout; those that are missing are made in the session.

    ``schema`` is that of the rows: arrays whose dtype the layout leaves open are made by it, and
    columns that the arrays cannot hold are refused. ``known`` is what was read for earlier batches.

    Raises:
        LayoutError: an array that exists does not go with the layout, or the rows do not.
    """
    return _Opening(session, layout, canonical(group), schema, known or Known()).open()


@dataclass(frozen=True, slots=True)
class _Opening:
    session: Session
    layout: Rows
    group: str
    schema: pa.Schema | None
    known: Known = field(default_factory=Known)

    def open(self) -> OpenGroup:
        self._require_group()
        stored = {name: self._coordinate(name) for name in self.layout.dims}
        axes = tuple(self._axis(name, each) for name, each in stored.items())
        columns = map(self.layout.dim_column, stored)
        coordinates = tuple(map(_Stored.target, stored.values(), columns))
        sizes = {axis.name: axis.size for axis in axes}
        targets = tuple(self._target(name, sizes) for name in self.layout.variables)
        return OpenGroup(axes, coordinates, targets)

    def _require_group(self) -> None:
        missing: list[str] = []
        path = self.group
        while self.session.reader.node(path) is None:
            missing.insert(0, path)
            if path == "/":
                break
            path = path.rpartition("/")[0] or "/"
        node = self.session.reader.node(path)
        if node is not None and not isinstance(node, GroupNode):
            raise LayoutError(f"{path} is an array: choose another group than {self.group}")
        make_groups(self.session.store, missing, self.layout.attrs)

    def _coordinate(self, name: str) -> _Stored:
        column, path = self.layout.dim_column(name), self._path(name)
        dimension, kind = self.layout.dims[name], self._column_type(column)
        if self.session.reader.node(path) is None:
            if isinstance(dimension, Fixed) and dimension.labels is None:
                message = f"there is no coordinate array {path} whose labels would be fixed"
                raise LayoutError(f"{message}: list them, as in fixed(labels)")
            make_array(self.session.store, coordinate_spec(path, name, dimension, kind))
            self._store_labels(path, dimension)
        stored = self._stored(path)
        if stored.dims != (name,):
            message = f"the array {path} has the dimensions {stored.dims}, and {(name,)} is wanted"
            raise LayoutError(f"{message}: rename it, or the dimension")
        if kind is not None and not isinstance(dimension, Regular):
            stored.encoding.check_column(kind, f"the column {column!r} of labels")
        return stored

    def _axis(self, name: str, stored: _Stored) -> Axis:
        dimension = self.layout.dims[name]
        return self.known.axis(stored.node) or Axis(
            name=name,
            column=self.layout.dim_column(name),
            dimension=dimension,
            size=stored.shape[0],
            encoding=stored.encoding,
            labels=_labels(stored, dimension),
            max_growth=self.layout.max_growth,
        )

    def _store_labels(self, path: str, dimension: object) -> None:
        if isinstance(dimension, Fixed) and dimension.labels is not None:
            stored = self._stored(path)
            stored.array[...] = _encoded(stored, dimension.labels)

    def _target(self, name: str, sizes: dict[str, int]) -> ArrayTarget:
        column, path = self.layout.variable_column(name), self._path(name)
        kind = self._column_type(column)
        if self.session.reader.node(path) is None:
            make_array(self.session.store, variable_spec(path, name, self.layout, sizes, kind))
        stored = self._stored(path)
        wanted = self.layout.dims_of(name)
        if sorted(stored.dims) != sorted(wanted):
            message = f"the array {path} has the dimensions {stored.dims}, the layout {wanted}"
            raise LayoutError(f"{message}: give the variable those dims, or another name")
        lengths = tuple(sizes[dim] for dim in stored.dims)
        if stored.shape != lengths:
            message = f"the array {path} is {stored.shape} long, and its coordinates {lengths}"
            raise LayoutError(f"{message}: xarray cannot open such a group; resize one of them")
        if kind is not None:
            stored.encoding.check_column(kind, f"the column {column!r} of the variable {name!r}")
        return stored.target(column)

    def _stored(self, path: str) -> _Stored:
        node = self.session.reader.node(path)
        if not isinstance(node, ArrayNode):
            raise LayoutError(f"{path} is a group, and the layout has an array there: rename one")
        form = self.known.form(node)
        if form is None:
            form = self._form(node)
            self.known.keep_form(node, form)
        return _Stored(self.session, node, form)

    def _form(self, node: ArrayNode) -> Form:
        document, path = json.loads(node.user_data), node.path
        # Looked at first: zarr may know no such grid.
        unit = _unit(document, path)
        dtype = zarr.open_array(self.session.store, path=path, mode="r").dtype
        encoding = encoding_of(dtype, document.get("attributes", {}), path)
        return Form(_dims(document, path), unit, encoding)

    def _path(self, name: str) -> str:
        return f"{self.group.rstrip('/')}/{name}"

    def _column_type(self, column: str) -> pa.DataType | None:
        if self.schema is None:
            return None
        if column not in self.schema.names:
            has = ", ".join(self.schema.names)
            raise LayoutError(f"the rows lack the column {column!r}: they have {has}")
        return self.schema.field(column).type


def _dims(document: dict[str, Any], path: str) -> tuple[str, ...]:
    names = document.get("dimension_names") or []
    if not names or None in names:
        message = f"the array {path} has the dimension names {names}"
        raise LayoutError(f"{message}: name each of them, as xarray does, to write rows into it")
    return tuple(names)


def _unit(document: dict[str, Any], path: str) -> tuple[int, ...]:
    """The shape of a shard, or of a chunk where there are no shards."""
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        message = f"the array {path} has a chunk grid of the kind {grid['name']!r}"
        raise LayoutError(
            f"{message}: rows go into regular ones only; write it with regular chunks"
        )
    return tuple(grid["configuration"]["chunk_shape"])


def _encoded(stored: _Stored, labels: pa.Array) -> NDArray[Any]:
    """Labels as the coordinate array holds them."""
    try:
        found = stored.encoding.encode(labels)
    except LayoutError as error:
        raise LayoutError(f"the coordinate array {stored.path}: {error.message}") from error
    if found.reasons.any():
        label = labels[int(np.flatnonzero(found.reasons)[0])]
        message = f"the coordinate array {stored.path} cannot store the label {label}"
        raise LayoutError(f"{message}: give the dimension a wider dtype, or finer units")
    return found.values


def _labels(stored: _Stored, dimension: Dimension) -> pa.Array | None:
    """The labels of a coordinate array, which are those that the layout has."""
    if isinstance(dimension, Regular):
        _check_grid(stored, dimension)
        return None
    labels = stored.encoding.labels(np.asarray(stored.array[...]))
    if isinstance(dimension, Fixed) and dimension.labels is not None:
        _check_fixed(stored, dimension.labels, labels)
    return labels


def _check_grid(stored: _Stored, regular: Regular) -> None:
    """Refuse a coordinate whose ends are not where the grid has them."""
    size = stored.shape[0]
    for index in dict.fromkeys((0, size - 1)) if size else ():
        wanted = _encoded(stored, grid_labels(regular, index, index + 1))
        found = np.asarray(stored.array[index : index + 1])
        if not _alike(found, wanted, regular):
            has = stored.encoding.decode(found)[0]
            label = grid_labels(regular, index, index + 1)[0]
            message = (
                f"the coordinate array {stored.path} has {has} at {index}, {regular!r} {label}"
            )
            raise LayoutError(f"{message}: give the start and the step that it has")
    if not size:
        _encoded(stored, grid_labels(regular, 0, 2))


def _alike(found: NDArray[Any], wanted: NDArray[Any], regular: Regular) -> bool:
    if found.dtype.kind != "f" or regular.is_time:
        return bool((found == wanted).all())
    slack = max(float(regular.tolerance), 1e-6 * float(regular.step))
    return bool((np.abs(found - wanted) <= slack).all())


def _check_fixed(stored: _Stored, labels: pa.Array, known: pa.Array) -> None:
    wanted = stored.encoding.labels(_encoded(stored, labels))
    if not wanted.equals(known):
        message = f"the coordinate array {stored.path} has other labels than fixed({labels!s:.60})"
        raise LayoutError(f"{message}: leave the labels out, and those of the array are taken")
