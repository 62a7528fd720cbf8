"""What making chunks of rows needs to know: arrays, policies, lengths, and the base snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icechunk_stream.errors import InvalidInputError

if TYPE_CHECKING:
    from icechunk_stream.session import Session
    from icechunk_stream.stream.encodings import Encoding
    from icechunk_stream.stream.layout import Duplicates, OnNull

# Boolean column of the rows: whether a row clears its cell in all variables.
DELETE = "#delete"
# int64 column of the rows that tasks exchange: the number of their unit.
UNIT = "#unit"


def index_column(dimension: str) -> str:
    """The int64 column of the rows with their indices along a dimension."""
    return f"#{dimension}"


@dataclass(frozen=True, slots=True)
class ArrayTarget:
    """An array that a column of the rows goes to, as of the base snapshot.

    ``document`` is its zarr.json. ``unit`` is the shape of what is written at once: a shard where
    the array has shards, else a chunk.
    """

    path: str
    column: str
    dims: tuple[str, ...]
    document: bytes
    shape: tuple[int, ...]
    unit: tuple[int, ...]
    encoding: Encoding

    def __post_init__(self) -> None:
        ranks = {len(self.dims), len(self.shape), len(self.unit)}
        if len(ranks) != 1 or not self.dims or min(self.unit) < 1:
            message = (
                f"the array {self.path} has the dimensions {self.dims}, the shape {self.shape} and"
                f" units of {self.unit}: rows need one dimension or more, and units that fit them"
            )
            raise InvalidInputError(message)


@dataclass(frozen=True, slots=True)
class Policies:
    """What becomes of nulls, and of rows for one cell.

    Duplicates are told apart per variable, over values that are not null. ``"first"`` and
    ``"last"`` go by the column ``order_by``, or by the order of the rows where it is None.
    """

    on_null: OnNull = "keep"
    duplicates: Duplicates = "error"
    order_by: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How rows become chunks of arrays on one grid. Pickled to the tasks of a batch.

    ``shape`` has the lengths of the dimensions after the batch, or the most that they may come to;
    ``grows`` tells which of them later batches may extend. ``base`` is a read-only session; None
    where no array holds anything yet.
    """

    targets: tuple[ArrayTarget, ...]
    shape: tuple[int, ...]
    grows: tuple[bool, ...]
    base: Session | None = None
    policies: Policies = field(default_factory=Policies)

    def __post_init__(self) -> None:
        if not self.targets:
            raise InvalidInputError("a plan has no arrays: give one target or more")
        for target in self.targets:
            if (target.dims, target.unit) != (self.dims, self.unit):
                message = (
                    f"the array {target.path} has units of {target.unit} along {target.dims},"
                    f" {self.targets[0].path} has {self.unit} along {self.dims}: make a plan of"
                    " each grid"
                )
                raise InvalidInputError(message)
        if not len(self.shape) == len(self.grows) == len(self.dims):
            message = f"lengths {self.shape} and growth {self.grows} of the dimensions {self.dims}"
            raise InvalidInputError(f"{message} differ in number: give one each")

    @property
    def dims(self) -> tuple[str, ...]:
        return self.targets[0].dims

    @property
    def unit(self) -> tuple[int, ...]:
        return self.targets[0].unit

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that rows must have; they may have ``#delete`` besides."""
        order = () if self.policies.order_by is None else (self.policies.order_by,)
        names = (*map(index_column, self.dims), *(each.column for each in self.targets), *order)
        return tuple(dict.fromkeys(names))
