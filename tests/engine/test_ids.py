"""Ids from forked processes: a copied generator would overwrite chunks."""

from __future__ import annotations

import multiprocessing

import numpy as np

from icechunk_stream.effects import random_bytes
from icechunk_stream.format.ids import OBJECT_ID_SIZE

PROCESSES = 8
IDS_EACH = 1_000_000


def _ids(_: int) -> bytes:
    return b"".join(random_bytes(OBJECT_ID_SIZE) for _ in range(IDS_EACH))


def test_eight_million_ids_of_forked_processes_never_repeat() -> None:
    with multiprocessing.get_context("fork").Pool(PROCESSES) as pool:
        drawn = b"".join(pool.map(_ids, range(PROCESSES)))

    halves = np.frombuffer(drawn, np.dtype([("high", ">u8"), ("low", ">u4")]))
    order = np.lexsort((halves["low"], halves["high"]))
    repeats = halves[order][1:] == halves[order][:-1]

    assert len(halves) == PROCESSES * IDS_EACH
    assert int(np.count_nonzero(repeats)) == 0
