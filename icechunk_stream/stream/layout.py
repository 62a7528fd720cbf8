"""The layout of tidy rows: a column for every dimension's labels, and one for every variable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.checks import (
    check_choice,
    check_column,
    check_known,
    check_length,
    check_node_name,
    frozen_attributes,
)
from icechunk_stream.stream.dimensions import (
    Append,
    Dimension,
    Fixed,
    Regular,
    append,
    fixed,
    regular,
)
from icechunk_stream.stream.frozen import FrozenMap, given_fields
from icechunk_stream.stream.shapes import check_shards, default_chunks
from icechunk_stream.stream.template import template_dims, template_variables
from icechunk_stream.stream.variables import Variable, as_variable, lengths

if TYPE_CHECKING:
    from collections.abc import Iterable

    import xarray as xr

__all__ = ["Append", "Dimension", "Fixed", "Regular", "Rows", "Variable"]
__all__ += ["append", "fixed", "regular"]

OnNull: TypeAlias = Literal["keep", "fill"]
Duplicates: TypeAlias = Literal["error", "first", "last"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows with one column of labels for every dimension, and one for every variable.

    Attributes:
        dims: The dimensions by name, made by ``regular``, ``append`` and ``fixed``; a coordinate
            array of that name holds the labels.
        variables: The arrays by name, each a ``Variable`` or its dtype alone.
        chunks: Lengths of chunks by dimension; sane ones for those left out.
        shards: Lengths of shards by dimension; no shards if there are none.
        on_null: What a null does: "keep" leaves the cell as it is, "fill" clears it.
        deletes: A SQL predicate over the rows: those for which it holds clear their cells.
        duplicates: Rows of one batch with the same labels and different values: an "error", or the
            "first" or "last" by ``order_by`` wins.
        order_by: The column that orders such rows.
        max_growth: More new labels of a dimension in one batch than this make bad rows.
        attrs: Attributes of the group, if it is made.
    """

    dims: Mapping[str, Dimension]
    variables: Mapping[str, Any]
    chunks: Mapping[str, int] = field(default_factory=FrozenMap)
    shards: Mapping[str, int] = field(default_factory=FrozenMap)
    on_null: OnNull = "keep"
    deletes: str | None = None
    duplicates: Duplicates = "error"
    order_by: str | None = None
    max_growth: int = 100_000
    attrs: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        dims = _dims(self.dims)
        chunks, shards = lengths(self.chunks, "chunks"), lengths(self.shards, "shards")
        check_known(chunks, dims, "chunks:")
        check_known(shards, dims, "shards:")
        normal = {
            "dims": dims,
            "chunks": default_chunks(dims, chunks, shards),
            "shards": shards,
            "variables": _variables(self.variables, dims),
            "attrs": frozen_attributes(self.attrs, "the group"),
        }
        for name, value in normal.items():
            object.__setattr__(self, name, value)
        _check(self)

    def __repr__(self) -> str:
        return given_fields(self)

    @classmethod
    def like(
        cls,
        dataset: xr.Dataset,
        dims: Mapping[str, Dimension],
        variables: Iterable[str] | None = None,
        **options: Any,  # noqa: ANN401 - the other options of Rows
    ) -> Self:
        """The layout of a template: its variables with their types, attributes and encodings.

        Args:
            dataset: The template; its values do not matter, but for the labels of dimensions that
                ``dims`` does not name.
            dims: The dimensions that rows grow or look up. Others are fixed to the template's.
            variables: The variables that rows have; all of the template if none are given.
            options: Any other option of ``Rows``.
        """
        names = list(map(str, dataset.data_vars)) if variables is None else list(variables)
        chosen = template_variables(dataset, names, options.get("chunks") or ())
        options.setdefault("attrs", dataset.attrs)
        return cls(template_dims(dataset, chosen, dims), chosen, **options)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that rows must have, but for those that only ``deletes`` mentions."""
        named = [self.dim_column(dim) for dim in self.dims]
        named += [self.variable_column(variable) for variable in self.variables]
        named += [self.order_by] if self.order_by else []
        return tuple(dict.fromkeys(named))

    def dim_column(self, dim: str) -> str:
        """The column with the labels of a dimension."""
        return self.dims[dim].coordinate.column or dim

    def variable(self, name: str) -> Variable:
        """How a variable's array is made."""
        variable: Variable = self.variables[name]
        return variable

    def variable_column(self, variable: str) -> str:
        """The column with the values of a variable."""
        return self.variable(variable).column or variable

    def dims_of(self, variable: str) -> tuple[str, ...]:
        """The dimensions of a variable's array, in their order."""
        return self.variable(variable).dims or tuple(self.dims)

    def chunk_shape(self, variable: str) -> tuple[int, ...]:
        """Lengths of the chunks of a variable's array."""
        own = self.variable(variable).chunks
        return tuple(own.get(dim, self.chunks[dim]) for dim in self.dims_of(variable))

    def shard_shape(self, variable: str) -> tuple[int, ...] | None:
        """Lengths of the shards of a variable's array; None where it has none."""
        own = {**self.shards, **self.variable(variable).shards}
        dims, chunks = self.dims_of(variable), self.chunk_shape(variable)
        if own.keys().isdisjoint(dims):
            return None
        return tuple(own.get(dim, chunk) for dim, chunk in zip(dims, chunks, strict=True))


def _dims(given: object) -> FrozenMap[str, Dimension]:
    if not isinstance(given, Mapping) or not given:
        raise LayoutError("dims is empty: give one dimension or more, as {'time': append()}")
    for name, dimension in given.items():
        check_node_name(name, "a dimension")
        if not isinstance(dimension, Regular | Append | Fixed):
            message = f"the dimension {name!r} is {dimension!r}"
            raise LayoutError(f"{message}: make it with regular(), append() or fixed()")
    return FrozenMap(given)


def _variables(given: object, dims: FrozenMap[str, Dimension]) -> FrozenMap[str, Variable]:
    if not isinstance(given, Mapping) or not given:
        raise LayoutError("variables is empty: give one or more, as {'temp': 'float32'}")
    found = {}
    for name, value in given.items():
        check_node_name(name, "a variable")
        if name in dims:
            message = f"{name!r} is a dimension and a variable: its labels are stored already"
            raise LayoutError(f"{message}; leave it out of variables")
        variable = as_variable(value)
        used = variable.dims or tuple(dims)
        check_known(used, dims, f"dims of {name!r}:")
        check_known((*variable.chunks, *variable.shards), used, f"chunks or shards of {name!r}:")
        found[name] = replace(variable, dims=used)
    return FrozenMap(found)


def _check(rows: Rows) -> None:
    check_choice(rows.on_null, ("keep", "fill"), "on_null")
    check_choice(rows.duplicates, ("error", "first", "last"), "duplicates")
    check_length(rows.max_growth, "max_growth")
    if rows.deletes is not None and not rows.deletes.strip():
        raise LayoutError("deletes is empty: give a SQL predicate, as in \"op = 'D'\", or nothing")
    if rows.order_by is not None:
        check_column(rows.order_by, "order_by")
    if (rows.duplicates == "error") != (rows.order_by is None):
        message = f"duplicates is {rows.duplicates!r} and order_by is {rows.order_by!r}"
        raise LayoutError(f"{message}: 'first' and 'last' need the column that orders rows")
    _check_columns(rows)
    for name in rows.variables:
        check_shards(name, rows.chunk_shape(name), rows.shard_shape(name))


def _check_columns(rows: Rows) -> None:
    """Two dimensions on one column would make a diagonal."""
    columns = [rows.dim_column(dim) for dim in rows.dims]
    for name in rows.dims:
        if columns.count(rows.dim_column(name)) > 1:
            message = f"several dimensions take their labels from the column {name!r}"
            raise LayoutError(f"{message}: give each of them a column of its own")
