"""Values that the encoders take: of every kind, in any order, small."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from icechunk_stream.format.chunk_refs import (
    ChunkPayload,
    ETag,
    InlineChunk,
    LastModified,
    NativeChunk,
    RefKind,
    VirtualChunk,
)
from icechunk_stream.format.ids import (
    ID8,
    ID12,
    ChunkId,
    ManifestId,
    NodeId,
    SnapshotId,
)
from icechunk_stream.format.nodes import (
    ArrayNode,
    Dimension,
    GroupNode,
    ManifestRefs,
    Node,
    NodeType,
)
from icechunk_stream.format.ref_tables import RefTable
from icechunk_stream.format.snapshot import ManifestFile
from icechunk_stream.format.snapshot_encode import SnapshotContents
from icechunk_stream.format.times import MAX_MICROS
from icechunk_stream.format.transaction_log import Move
from tests.format.json_strategies import keys, texts, values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    Index = tuple[int, ...]

KEY = "place/of/object"
U32, U64 = 2**32 - 1, 2**64 - 1

octets12 = st.binary(min_size=12, max_size=12)
manifest_ids = octets12.map(ManifestId)
snapshot_ids = octets12.map(SnapshotId)
chunk_ids = octets12.map(ChunkId)
node_ids = st.binary(min_size=8, max_size=8).map(NodeId)
times = st.integers(0, MAX_MICROS)
metadata = st.dictionaries(keys, values, max_size=3)

segments = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="/"), min_size=1, max_size=4
)
paths = st.lists(segments.filter(lambda name: name not in (".", "..")), max_size=3).map(
    lambda names: "/" + "/".join(names)
)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    offset = draw(st.integers(0, U64 - 1))
    return offset, draw(st.integers(1, U64 - offset))


@st.composite
def virtual_chunks(draw: st.DrawFn) -> VirtualChunk:
    checksum = draw(st.none() | texts.map(ETag) | st.integers(1, U32).map(LastModified))
    return VirtualChunk(draw(texts), *draw(ranges()), checksum)


native_chunks = st.builds(lambda id, where: NativeChunk(id, *where), chunk_ids, ranges())
inline_chunks = st.binary(min_size=1, max_size=40).map(InlineChunk)
chunks: st.SearchStrategy[ChunkPayload] = native_chunks | inline_chunks | virtual_chunks()


@st.composite
def references(draw: st.DrawFn) -> dict[Index, ChunkPayload]:
    """Chunks of one array by index; some grids are too large for one integer."""
    rank = draw(st.integers(0, 4))
    coordinate = st.integers(0, draw(st.sampled_from((3, 300, U32))))
    indices = st.tuples(*[coordinate] * rank)
    return draw(st.dictionaries(indices, chunks, min_size=1, max_size=12))


def ref_table(refs: Mapping[Index, ChunkPayload], encoding: str = "plain") -> RefTable:
    """The columns of references, in the mapping's order."""
    rows = list(refs.values())
    rank = len(next(iter(refs)))
    ranged = [row if isinstance(row, NativeChunk | VirtualChunk) else None for row in rows]
    virtual = [row if isinstance(row, VirtualChunk) else None for row in rows]
    checksums = [None if row is None else row.checksum for row in virtual]
    ids = [row.id.raw if isinstance(row, NativeChunk) else bytes(12) for row in rows]
    return RefTable(
        indices=np.array(list(refs), np.uint32).reshape(len(rows), rank),
        kinds=np.array([_kind(row) for row in rows], np.uint8),
        offsets=np.array([0 if row is None else row.offset for row in ranged], np.uint64),
        lengths=np.array([0 if row is None else row.length for row in ranged], np.uint64),
        chunk_ids=np.frombuffer(b"".join(ids), ID12),
        inline=_column(
            [row.data if isinstance(row, InlineChunk) else None for row in rows],
            pa.binary(),
            encoding,
        ),
        locations=_column(
            [None if row is None else row.location for row in virtual], pa.string(), encoding
        ),
        etags=_column(
            [sum_.value if isinstance(sum_, ETag) else None for sum_ in checksums],
            pa.string(),
            encoding,
        ),
        modified=np.array(
            [sum_.seconds if isinstance(sum_, LastModified) else 0 for sum_ in checksums], np.uint32
        ),
    )


def _kind(chunk: ChunkPayload) -> RefKind:
    match chunk:
        case NativeChunk():
            return RefKind.NATIVE
        case VirtualChunk():
            return RefKind.VIRTUAL
        case InlineChunk():
            return RefKind.INLINE


def _column(items: list[Any], dtype: pa.DataType, encoding: str) -> pa.Array:
    column = pa.array(items, dtype)
    match encoding:
        case "dictionary":
            return column.dictionary_encode()
        case "large":
            return column.cast(pa.large_string() if dtype == pa.string() else pa.large_binary())
        case "view":
            return column.cast(pa.string_view() if dtype == pa.string() else pa.binary_view())
        case "chunked":
            return pa.chunked_array([column[:1], column[1:]])
        case "slice":
            return pa.concat_arrays([column[:1], column])[1:]
        case _:
            return column


ENCODINGS = ("plain", "dictionary", "large", "view", "chunked", "slice")


def id_column(ids: list[NodeId]) -> npt.NDArray[np.void]:
    return np.frombuffer(b"".join(id.raw for id in ids), ID8)


@st.composite
def dimensions(draw: st.DrawFn, spec_version: int) -> Dimension:
    """Spec v1 has regular grids only."""
    length = draw(st.integers(0, 50) | st.integers(0, U64))
    if spec_version == 1:
        chunk = draw(st.integers(-(-length // U32) or 1, U64))
        return Dimension(length, -(-length // chunk))
    return Dimension(length, draw(st.integers(0, U32)))


@st.composite
def manifest_refs(draw: st.DrawFn, rank: int) -> ManifestRefs:
    """Boxes side by side along the first axis."""
    if rank == 0:
        count = draw(st.integers(0, 1))
        extents = np.zeros((count, 0, 2), np.uint32)
    else:
        bounds = st.lists(st.integers(0, U32), min_size=2, max_size=2, unique=True).map(sorted)
        rest = draw(st.tuples(*[bounds] * (rank - 1)))
        cuts = sorted(draw(st.lists(st.integers(0, U32), unique=True, max_size=5)))
        boxes = [[first, *rest] for first in pairwise(cuts)]
        count = len(boxes)
        extents = np.array(boxes, np.uint32).reshape(count, rank, 2)
    ids = draw(st.lists(octets12, min_size=count, max_size=count, unique=True))
    return ManifestRefs(np.frombuffer(b"".join(ids), ID12), extents)


@st.composite
def nodes(draw: st.DrawFn, spec_version: int, id: NodeId, path: str) -> Node:
    user_data = draw(st.binary(max_size=30))
    if draw(st.booleans()):
        return GroupNode(id, path, user_data)
    shape = draw(st.lists(dimensions(spec_version), max_size=3))
    names = st.lists(st.none() | texts.filter(bool), max_size=4).map(tuple)
    return ArrayNode(
        id, path, user_data, tuple(shape), draw(st.none() | names), draw(manifest_refs(len(shape)))
    )


@st.composite
def snapshots(draw: st.DrawFn, spec_version: int) -> SnapshotContents:
    id, parent = draw(st.lists(snapshot_ids, min_size=2, max_size=2, unique=True))
    places = draw(st.lists(paths, max_size=5, unique=True))
    ids = draw(st.lists(node_ids, min_size=len(places), max_size=len(places), unique=True))
    made = [draw(nodes(spec_version, id, path)) for id, path in zip(ids, places, strict=True)]
    used = {
        ManifestId(raw.tobytes())
        for node in made
        if isinstance(node, ArrayNode)
        for raw in node.manifests.ids
    }
    sizes = st.tuples(st.integers(0, U64), st.integers(0, U32))
    files = [ManifestFile(id, *draw(sizes)) for id in draw(st.permutations(sorted(used)))]
    return SnapshotContents(
        id=id,
        parent_id=draw(st.none() | st.just(parent)) if spec_version == 1 else None,
        flushed_at=draw(times),
        message=draw(texts),
        metadata=draw(metadata),
        manifest_files=files,
        nodes=made,
    )


coordinates = st.tuples(st.integers(0, 3), st.sampled_from((2, 500, U32))).flatmap(
    lambda drawn: st.sets(st.tuples(*[st.integers(0, drawn[1])] * drawn[0]), max_size=10).map(
        lambda found: np.array(sorted(found), np.uint32).reshape(len(found), drawn[0])
    )
)
moves = st.builds(Move, paths, paths, node_ids, st.sampled_from(NodeType))
