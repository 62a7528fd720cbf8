"""Nodes of a snapshot that go into the next one as the bytes that they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from icechunk_stream.format.heaps import lay_out
from icechunk_stream.format.node_blocks import node_blocks
from icechunk_stream.format.texts import byte_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from icechunk_stream.format.columns import Positions
    from icechunk_stream.format.heaps import Heap
    from icechunk_stream.format.node_blocks import NodeBlocks
    from icechunk_stream.format.node_rows import Nodes
    from icechunk_stream.format.records import Writer

# What every part is aligned to, counted from the begin of a flatbuffer.
_PHASE = 8
# A vtable and padding fit between two blocks, and no node does.
_MOST_BETWEEN = 32


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """Rows of nodes that are copied, in the order of their paths."""

    nodes: Nodes
    blocks: NodeBlocks
    rows: Positions

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> npt.NDArray[np.void]:
        return self.nodes.ids[self.rows]

    @property
    def manifests(self) -> npt.NDArray[np.void]:
        """The manifests that they use, as often as they do."""
        return self.blocks.manifests[self._has(self.blocks.manifest_rows)]

    def before(self, paths: Iterable[bytes]) -> Positions:
        """How many copied nodes come before each path."""
        places = [self.nodes.place(path) for path in paths]
        return np.searchsorted(self.rows, np.array(places, np.intp))

    def write(self, writer: Writer) -> Positions:
        """Append the blocks and the names outside of them; where the table of each node now is."""
        blocks = self.blocks
        vtables = np.array([writer.vtable(octets) for octets in blocks.vtables], np.intp)
        runs = _runs(blocks, self.rows, writer.pad(_PHASE))
        writer.reserve(runs.size)
        words = runs.copied(blocks.buffer.octets).view("<i4")
        kept = self._has(blocks.table_rows)
        tables = blocks.tables[kept] + runs.shifts[blocks.table_rows[kept]]
        words[(tables - runs.at) >> 2] = tables - vtables[blocks.table_vtables[kept]]
        names = self._link_names(words, runs)
        writer.append(words)
        names.write(writer)
        writer.tables += len(tables)
        return self.nodes.at[self.rows] + runs.shifts[self.rows]

    def _link_names(self, words: npt.NDArray[np.int32], runs: _Runs) -> Heap:
        """Let offsets point to the names, which will stand behind the blocks."""
        blocks = self.blocks
        kept = self._has(blocks.name_rows)
        used, numbers = np.unique(blocks.names[kept], return_inverse=True)
        heap = lay_out(byte_column(blocks.buffer, used).cast(pa.large_binary()), terminated=True)
        fields = blocks.name_fields[kept] + runs.shifts[blocks.name_rows[kept]]
        words[(fields - runs.at) >> 2] = runs.at + runs.size + heap.starts[numbers] - fields
        return heap

    def _has(self, rows: Positions) -> npt.NDArray[np.bool_]:
        kept = np.zeros(len(self.nodes), np.bool_)
        kept[self.rows] = True
        return kept[rows]


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Blocks side by side, and where each such run will stand from position ``at`` on.

    ``shifts`` has, for each node that is copied, how far away from its old place.
    """

    at: int
    size: int
    starts: Positions
    ends: Positions
    places: Positions
    shifts: Positions

    def copied(self, source: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        octets = np.zeros(self.size, np.uint8)
        places = (self.places - self.at).tolist()
        for place, start, end in zip(places, self.starts.tolist(), self.ends.tolist(), strict=True):
            octets[place : place + end - start] = source[start:end]
        return octets


def copies_of(nodes: Nodes, kept: npt.NDArray[np.bool_], spec_version: int) -> Copies:
    """Those of the nodes to keep that lie in blocks of their own."""
    blocks = node_blocks(nodes, spec_version)
    return Copies(nodes, blocks, np.flatnonzero(kept & blocks.whole))


def _runs(blocks: NodeBlocks, rows: Positions, at: int) -> _Runs:
    order = rows[np.argsort(blocks.starts[rows], kind="stable")]
    starts, ends = blocks.starts[order], blocks.ends[order]
    opens = np.ones(len(order), np.bool_)
    opens[1:] = starts[1:] - ends[:-1] > _MOST_BETWEEN
    closes = np.append(opens[1:], True)[: len(order)]
    firsts, lasts = starts[opens], ends[closes]
    phases = firsts % _PHASE
    sizes = -(-(phases + lasts - firsts) // _PHASE) * _PHASE
    places = at + np.cumsum(sizes) - sizes + phases
    shifts = np.zeros(len(blocks.starts), np.intp)
    shifts[order] = (places - firsts)[np.cumsum(opens) - 1]
    return _Runs(at, int(sizes.sum()), firsts, lasts, places, shifts)
