"""A compaction in a process of its own, which says how much memory it took.

Run as ``python -m tests.manifests.measured_compaction make|compact FOLDER REFS MANIFESTS``.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from icechunk_stream import (
    Compacted,
    ManifestConfig,
    Repository,
    RepositoryConfig,
    Tiered,
    VirtualChunkContainer,
    local_filesystem_storage,
    local_filesystem_store,
)
from tests.resident import forget_peak, peak, resident

ROOT = Path(__file__).parents[2]
PREFIX = "file:///nowhere/"
SCATTERED = Tiered(cell_refs=2**30, ratio=2**20, most=2**21, shared_refs=1)
CELL = 2**14


def run(folder: Path, refs: int, manifests: int) -> dict[str, Any]:
    """Bytes that a compaction needed beside what the process had before, and what it wrote."""
    found: dict[str, Any] = {}
    for step in ("make", "compact"):
        words = [step, str(folder), str(refs), str(manifests)]
        command = [sys.executable, "-m", "tests.manifests.measured_compaction", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=150, check=False)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        found = json.loads(done.stdout)
    return found


def make(folder: str, refs: int, manifests: int) -> None:
    """An array of so many references in manifests of equal size, each of a commit."""
    config = RepositoryConfig(manifest=ManifestConfig())
    store = local_filesystem_store("/nowhere")
    config.set_virtual_chunk_container(VirtualChunkContainer(PREFIX, store))
    place = local_filesystem_storage(folder, durability="os")
    repository = Repository.create(place, config, spec_version=1).with_manifest_policy(SCATTERED)
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="a", shape=(refs,), chunks=(1,), dtype="int8")
    session.commit("array")
    size = refs // manifests
    offsets = np.arange(size, dtype=np.uint64)
    for number in range(manifests):
        session = repository.writable_session("main")
        session.store.set_virtual_refs_arr(
            "a",
            (size,),
            [f"{PREFIX}{number}"] * size,
            offsets,
            offsets + np.uint64(1),
            arr_offset=(number * size,),
        )
        session.commit("batch")
    print("{}")


def compact(folder: str) -> None:
    place = local_filesystem_storage(folder, durability="os")
    repository = Repository.open(place).with_manifest_policy(Tiered(cell_refs=CELL))
    repository.readonly_session("main").store.list_dir("")
    gc.collect()
    forget_peak()
    before = resident()
    outcome = repository.compact(branch="main")
    assert isinstance(outcome, Compacted)
    took = peak() - before
    print(
        json.dumps(
            {"took": took, "before": outcome.before.manifests, "after": outcome.after.manifests}
        )
    )


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        compact(sys.argv[2])
