"""What a batch would do to a repository, for people and for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.stream.bad_rows import BadRows

# How often bytes of cells may be written for once given, before it is worth a word.
_MUCH = 4.0
# So many batches fill a chunk where it is written that often on average.
_FEW_BATCHES = 2 * _MUCH - 1
_KIB = 1024


@dataclass(frozen=True, slots=True)
class ExplainedDimension:
    """A dimension, the column with its labels, and its length before and after the batch."""

    name: str
    column: str
    kind: str
    path: str
    dtype: str
    units: str | None
    is_new: bool
    before: int
    after: int

    @property
    def new_labels(self) -> int:
        return self.after - self.before

    def __str__(self) -> str:
        units = f" {self.units}" if self.units else ""
        made = ", to be made" if self.is_new else ""
        grown = f" (+{self.new_labels:,})" if self.new_labels else ""
        return (
            f"{self.name}: {self.kind} from the column {self.column!r}, {self.before:,} ->"
            f" {self.after:,}{grown}; {self.path} is {self.dtype}{units}{made}"
        )


@dataclass(frozen=True, slots=True)
class ExplainedArray:
    """A variable's array, and what the batch does to its chunks (shards, where it has them).

    ``rewritten`` chunks exist and are covered in part: they are read and written again.
    ``cells_given`` are distinct; ``cells_written`` are those of all chunks that are touched, as far
    as they lie in the array after the batch; ``cells_full`` are those of the same chunks once the
    dimensions that march on, as times do, have grown over them.
    """

    path: str
    column: str
    dims: tuple[str, ...]
    marches: tuple[bool, ...]
    dtype: str
    chunk: tuple[int, ...]
    is_new: bool
    item_size: int
    chunks: int
    rewritten: int
    cells_given: int
    cells_written: int
    cells_full: int

    @property
    def amplification(self) -> float:
        """Cells written by this batch for each one given."""
        return self.cells_written / self.cells_given if self.cells_given else 0.0

    @property
    def batches_per_chunk(self) -> float:
        """How many batches like this one it takes to fill a chunk."""
        return self.cells_full / self.cells_given if self.cells_given else 0.0

    @property
    def expected_amplification(self) -> float:
        """Over many batches like this: a chunk is written again by each one that adds to it."""
        return max(self.amplification, (1 + self.batches_per_chunk) / 2)

    @property
    def warning(self) -> str | None:
        """What to change where batches are much smaller than chunks."""
        if self.expected_amplification <= _MUCH:
            return None
        factor = math.ceil(max(self.amplification / _MUCH, self.batches_per_chunk / _FEW_BATCHES))
        share = 1 / self.batches_per_chunk
        return (
            f"the batch gives {share:.1%} of the cells of the chunks that it touches, so that a"
            f" cell is written about {self.expected_amplification:.0f} times. Make batches about"
            f" {factor} times as large (maxOffsetsPerTrigger, maxFilesPerTrigger or a longer"
            f" trigger interval), or chunks that much smaller ({self._smaller(factor)}), which only"
            " a new array can have"
        )

    def __str__(self) -> str:
        dims = ", ".join(f"{dim}: {size}" for dim, size in zip(self.dims, self.chunk, strict=True))
        made = ", to be made" if self.is_new else ""
        return (
            f"{self.path} from the column {self.column!r}: {self.dtype} in chunks of ({dims}){made}"
            f"; {self.chunks:,} chunks, {self.rewritten:,} of them read and written again,"
            f" {self.amplification:.1f} cells written for each one given"
        )

    def _smaller(self, factor: int) -> str:
        """A shorter chunk: along what grows, and there along what is longest."""
        sizes = list(zip(self.marches, self.chunk, self.dims, strict=True))
        _, size, dim = max(sizes)
        return f"{dim}: {size} -> {max(size // factor, 1)}"


@dataclass(frozen=True, slots=True)
class ExpectedCommit:
    """The commit that comes next by the ledger; ``tip`` is None where the branch is missing.

    ``query_id`` is that of the query which wrote the stream so far.
    """

    app_id: str
    batch_id: int
    query_id: str | None
    branch: str
    tip: str | None

    def __str__(self) -> str:
        where = "which is to be made" if self.tip is None else f"on {self.tip}"
        query = f" of query {self.query_id}" if self.query_id else ", its first"
        return f"batch {self.batch_id} of {self.app_id!r}{query}, to {self.branch!r}, {where}"


@dataclass(frozen=True, slots=True)
class ExpectedObjects:
    """Objects that the batch writes, by the folder that they are in, and their bytes."""

    folders: tuple[tuple[str, int], ...]
    bytes: int

    @property
    def count(self) -> int:
        return sum(count for _, count in self.folders)

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {folder}" for folder, count in self.folders)
        return f"{self.count} ({parts}), {self.bytes / _KIB:,.1f} KiB"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a batch would do; nothing of it was done.

    ``objects`` is None and ``refusal`` says why where the batch would fail.
    """

    repository: str
    is_new: bool
    commit: ExpectedCommit
    rows: int
    bad: BadRows
    dims: tuple[ExplainedDimension, ...]
    arrays: tuple[ExplainedArray, ...]
    objects: ExpectedObjects | None
    refusal: str | None

    @property
    def new_labels(self) -> dict[str, int]:
        """How many labels each dimension grows by."""
        return {dim.name: dim.new_labels for dim in self.dims if dim.new_labels}

    @property
    def chunks(self) -> int:
        """Chunks of variables that are written, or cleared."""
        return sum(array.chunks for array in self.arrays)

    @property
    def rewritten(self) -> int:
        """Chunks that are there, and are covered in part."""
        return sum(array.rewritten for array in self.arrays)

    @property
    def amplification(self) -> float:
        """Bytes of cells written for each byte of cells given."""
        given = sum(array.cells_given * array.item_size for array in self.arrays)
        written = sum(array.cells_written * array.item_size for array in self.arrays)
        return written / given if given else 0.0

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to change, once for all arrays that it is said of."""
        paths: dict[str, list[str]] = {}
        for array in self.arrays:
            if array.warning is not None:
                paths.setdefault(array.warning, []).append(array.path)
        return tuple(f"{', '.join(names)}: {text}" for text, names in paths.items())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        made = ", which is to be made" if self.is_new else ""
        yield f"{self.repository}{made}"
        yield f"  commit     {self.commit}"
        yield f"  rows       {self.rows:,}, {self.bad.count:,} of them bad"
        for group in self.bad.groups:
            yield f"             {group}: {group.advice}"
        for dim in self.dims:
            yield f"  dimension  {dim}"
        for array in self.arrays:
            yield f"  array      {array}"
        yield (
            f"  chunks     {self.chunks:,}, {self.rewritten:,} of them read and written again,"
            f" {self.amplification:.1f} bytes of cells written for each one given"
        )
        yield f"  objects    {'none' if self.objects is None else self.objects}"
        if self.refusal is not None:
            yield f"  fails      {self.refusal}"
        for warning in self.warnings:
            yield f"  warning    {warning}"
