"""Nodes whose paths, documents, grids or extents cannot be."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from icechunk_stream.format.boxes import overlap
from tests.hostile import documents as doc
from tests.hostile.raw import Offsets, Table, text
from tests.hostile.reading import LOG, MANIFEST, SNAPSHOT
from tests.hostile.refusals import reason


@pytest.mark.parametrize(
    "path",
    ["", "a", "a/b", "/a/", "//a", "/a//b", "/.", "/..", "/a/../b", "/a/.", "//", "/./a"],
)
def test_paths_that_would_have_to_be_resolved_are_refused(path: str) -> None:
    reason(SNAPSHOT, doc.snapshot(doc.group(path)))


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("path", ["", "a", "/a/", "/..", "/a/../b"])
def test_moves_of_such_paths_are_refused(path: str, slot: int) -> None:
    move = doc.move()
    move.fields[slot] = text(path)
    reason(LOG, doc.log((), [move]))


@pytest.mark.parametrize("path", ["/…", "/a b", "/.a", "/...", "/a\0b", "/\N{PILE OF POO}"])
def test_unusual_paths_are_read(path: str) -> None:
    SNAPSHOT.read_document(doc.snapshot(doc.group(path)))


@pytest.mark.parametrize("open_with", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_documents_nested_too_deeply_are_refused(open_with: bytes) -> None:
    node = doc.group("/a", document=open_with * 100_000)
    assert "deep" in reason(SNAPSHOT, doc.snapshot(node))


EXTENTS: dict[str, list[list[tuple[int, int]]]] = {
    "empty": [[(0, 0), (0, 1)]],
    "empty along the second axis": [[(0, 1), (3, 3)]],
    "inverted": [[(2, 1), (0, 1)]],
    "inverted to the full": [[(2**32 - 1, 0), (0, 1)]],
    "of too few dimensions": [[(0, 1)]],
    "of no dimension": [[]],
    "of too many dimensions": [[(0, 1), (0, 1), (0, 1)]],
    "of different ranks": [[(0, 1), (0, 1)], [(1, 2)]],
}


@pytest.mark.parametrize("name", EXTENTS)
def test_extents_that_cannot_be_are_refused(name: str) -> None:
    reason(SNAPSHOT, doc.snapshot(doc.array("/a", boxes=EXTENTS[name])))


READABLE: dict[str, list[list[tuple[int, int]]]] = {
    "the same": [[(0, 1), (0, 1)], [(0, 1), (0, 1)]],
    "one inside of the other": [[(0, 9), (0, 9)], [(3, 4), (3, 4)]],
    "crossing": [[(0, 9), (3, 4)], [(3, 4), (0, 9)]],
    "rows": [[(n, n + 1), (0, 9)] for n in range(100)],
    "columns": [[(0, 9), (n, n + 1)] for n in range(100)],
    "cells": [[(3 * n, 3 * n + 2), (m, m + 1)] for n in range(20) for m in range(20)],
    "in no order": [[(7, 9), (0, 1)], [(0, 3), (0, 9)], [(7, 9), (1, 2)], [(3, 7), (2, 4)]],
    "a pinwheel": [[(0, 2), (0, 1)], [(0, 1), (1, 3)], [(1, 3), (2, 3)], [(2, 3), (0, 2)]],
}


@pytest.mark.parametrize("name", READABLE)
def test_extents_are_read_also_where_release_1_made_them_overlap(name: str) -> None:
    SNAPSHOT.read_document(doc.snapshot(doc.array("/a", boxes=READABLE[name])))


@pytest.mark.parametrize("seed", range(40))
def test_overlaps_are_found_as_by_comparing_all_pairs(seed: int) -> None:
    random = np.random.default_rng(seed)
    rank, count = int(random.integers(1, 4)), int(random.integers(2, 30))
    low = random.integers(0, 4 + 2 * count // rank, (count, rank))
    boxes = np.stack((low, low + random.integers(1, 4, (count, rank))), axis=2).astype(np.uint32)
    one, other = boxes[:, None], boxes[None, :]
    meet = ((one[..., 0] < other[..., 1]) & (other[..., 0] < one[..., 1])).all(axis=2)
    assert overlap(boxes) == (int(meet.sum()) > count)


@pytest.mark.parametrize("rank", [65, 1000])
def test_arrays_of_too_many_dimensions_are_refused(rank: int) -> None:
    reason(SNAPSHOT, doc.snapshot(doc.array("/a", shape=[(1, 1)] * rank, boxes=())))
    array = doc.array_v1("/a", shape=[(1, 1)] * rank)
    cast("Table", array.fields[4]).fields[2] = Offsets([])
    reason(SNAPSHOT, doc.snapshot_v1(array), 1)
    reason(MANIFEST, doc.manifest(doc.array_refs(1, [doc.native([0] * rank)])))
    reason(LOG, doc.log([doc.updated_chunks(1, [0] * rank)]))


@pytest.mark.parametrize("shape", [(4, 0), (2**64 - 1, 1), (2**32, 1)])
def test_chunk_lengths_that_make_no_grid_are_refused_in_spec_v1(shape: tuple[int, int]) -> None:
    array = doc.array_v1("/a", shape=(shape, (6, 2)))
    reason(SNAPSHOT, doc.snapshot_v1(array), 1)
