"""Which manifests of a snapshot to write anew: what is laid out best for readers stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np

from icechunk_stream.compacting.survey import Share
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.manifests.policy import Tiered
from icechunk_stream.manifests.rebuild import Grid, refs_at_most
from icechunk_stream.manifests.regrouping import regrouped
from icechunk_stream.manifests.splitting import cell_sizes
from icechunk_stream.packing import packed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from icechunk_stream.compacting.survey import Cell, Survey
    from icechunk_stream.format.ids import ManifestId, NodeId
    from icechunk_stream.format.snapshot import ManifestFile
    from icechunk_stream.manifests.policy import ManifestPolicy
    from icechunk_stream.packing import EncodingRules
    from icechunk_stream.reading import SnapshotReader

PieceKey: TypeAlias = tuple[object, ...]
JobKey: TypeAlias = tuple[PieceKey, ...]

_DEFAULT = Tiered()


@dataclass(frozen=True, slots=True)
class Limits:
    """In references: a full manifest, one that arrays share, and what is in memory at a time."""

    full: int
    shared: int
    at_once: int

    @classmethod
    def of(cls, policy: ManifestPolicy) -> Self:
        if isinstance(policy, Tiered):
            shared = min(policy.shared_refs, policy.cell_refs)
            return cls(policy.cell_refs, shared, 2 * policy.cell_refs)
        return cls(2**62, 0, 2 * _DEFAULT.cell_refs)

    @property
    def measured(self) -> int:
        """Manifests of so few references may have some that no array uses."""
        return max(self.shared, _DEFAULT.shared_refs)


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """An array with manifests, and about how many references each of them has of it."""

    node: ArrayNode
    grid: Grid
    files: tuple[ManifestFile, ...]
    sizes: npt.NDArray[np.int64]
    crosses: npt.NDArray[np.bool_]

    def share(self, number: int) -> Share:
        return Share(self.node, number, self.grid, bool(self.crosses[number]))


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Manifests of an array that become one; with a ``cell``, what lies in it becomes that."""

    array: Array
    numbers: tuple[int, ...]
    cell: Cell | None = None

    @property
    def node(self) -> NodeId:
        return self.array.node.id

    @property
    def key(self) -> PieceKey:
        ids = (self.array.files[number].id for number in self.numbers)
        sizes = None if self.cell is None else self.array.grid.sizes.tobytes()
        return (self.node, self.cell, sizes, *ids)

    def shares(self) -> Iterator[Share]:
        return map(self.array.share, self.numbers)

    @property
    def is_one(self) -> bool:
        """Whether one manifest has it."""
        return len(self.numbers) == 1 and self.cell is None

    @property
    def file(self) -> ManifestFile:
        return self.array.files[self.numbers[0]]

    @property
    def is_all_of_one(self) -> bool:
        """Whether one manifest has it, and nothing else."""
        return self.is_one and self.file.num_chunk_refs == len(self)

    def __len__(self) -> int:
        return int(self.array.sizes[list(self.numbers)].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Pieces of several arrays for one manifest, or one piece for one or, if it is large, a few."""

    pieces: tuple[Piece, ...]

    @property
    def key(self) -> JobKey:
        return tuple(piece.key for piece in self.pieces)

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


def plan_of(
    reader: SnapshotReader, rules: EncodingRules, survey: Survey, *, looks: bool
) -> list[Job]:
    """What to write; where it ``looks``, all is measured that the snapshot does not tell."""
    limits = Limits.of(rules.policy)
    arrays = [_array(node, reader, rules) for node in _with_manifests(reader)]
    users = Counter(file.id for array in arrays for file in array.files)
    if looks:
        survey.measure(_doubtful(arrays, users, limits))
    arrays = [_measured(array, survey) for array in arrays]
    large: list[Piece] = []
    small: list[Piece] = []
    for array in arrays:
        for piece in _pieces(array, survey, limits):
            (small if len(piece) < limits.shared else large).append(piece)
    jobs = [Job((piece,)) for piece in large if not _is_best(piece, limits)]
    return [*jobs, *_bins(small, limits)]


def _with_manifests(reader: SnapshotReader) -> Iterator[ArrayNode]:
    """Arrays with chunks; where an axis has no length, old releases left some that stay."""
    for node in reader.nodes:
        if isinstance(node, ArrayNode) and len(node.manifests) and all(node.grid):
            yield node


def _array(node: ArrayNode, reader: SnapshotReader, rules: EncodingRules) -> Array:
    grid = Grid.of(node.grid, cell_sizes(rules.splitting, node))
    files = tuple(reader.file(node, number) for number in range(len(node.manifests)))
    boxes = node.manifests.extents.astype(np.int64)
    low, last = boxes[:, :, 0], boxes[:, :, 1] - 1
    within = grid.inside(last) & (low // grid.sizes == last // grid.sizes).all(axis=1)
    counts = np.array([file.num_chunk_refs for file in files], np.int64)
    return Array(node, grid, files, refs_at_most(counts, node.manifests.extents), ~within)


def _doubtful(
    arrays: Iterable[Array], users: Counter[ManifestId], limits: Limits
) -> Iterator[Share]:
    """Where the snapshot does not tell how many references there are, or in which cells."""
    for array in arrays:
        for number, file in enumerate(array.files):
            shared = users[file.id] > 1 or file.num_chunk_refs <= limits.measured
            if shared or array.crosses[number]:
                yield array.share(number)


def _measured(array: Array, survey: Survey) -> Array:
    counts = (survey.count(array.share(number)) for number in range(len(array.files)))
    known = [
        size if count is None else count
        for count, size in zip(counts, array.sizes.tolist(), strict=True)
    ]
    return Array(array.node, array.grid, array.files, np.array(known, np.int64), array.crosses)


def _pieces(array: Array, survey: Survey, limits: Limits) -> Iterator[Piece]:
    """All references of an array, cell by cell; none where it is not known which cells have any."""
    cells = _by_cell(array, survey)
    boxes = array.node.manifests.extents.astype(np.int64)
    for cell, numbers in sorted((cells or {}).items()):
        if array.crosses[numbers].any():
            yield Piece(array, tuple(numbers), cell)
            continue
        members = np.array(numbers)
        for group in regrouped(boxes[members], array.sizes[members], limits.full):
            yield Piece(array, tuple(sorted(members[group].tolist())))


def _by_cell(array: Array, survey: Survey) -> dict[Cell, list[int]] | None:
    found: dict[Cell, list[int]] = {}
    low = array.node.manifests.extents[:, :, 0] // array.grid.sizes
    for number, corner in enumerate(low.tolist()):
        cells: Sequence[Cell] | None = [tuple(corner)]
        if array.crosses[number]:
            cells = survey.cells(array.share(number))
        if cells is None:
            return None
        for cell in cells:
            found.setdefault(cell, []).append(number)
    return found


def _is_best(piece: Piece, limits: Limits) -> bool:
    """Whether it is a manifest of its own already, which is not too large."""
    return piece.is_all_of_one and len(piece) < 2 * limits.full


def _bins(small: Sequence[Piece], limits: Limits) -> Iterator[Job]:
    """Small pieces for shared manifests; those that share one stay if that saves no manifest."""
    filled: Counter[ManifestFile] = Counter()
    for piece in small:
        if piece.is_one:
            filled[piece.file] += len(piece)
    stays = [each.is_one and filled[each.file] == each.file.num_chunk_refs for each in small]
    loose = [piece for piece, stay in zip(small, stays, strict=True) if not stay]
    kept = {piece.file for piece, stay in zip(small, stays, strict=True) if stay}
    some, every = (list(packed(pieces, limits.shared)) for pieces in (loose, small))
    chosen = every if len(every) < len(kept) + len(some) else some
    return (Job(tuple(pieces)) for pieces in chosen)
