"""Hierarchies of many nodes: opening, one look-up, one commit; time, bytes, and Python's work."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any

from zarr.core.buffer import default_buffer_prototype

from bench.commit_bases import copied, local_storage, objects_in
from bench.commit_nodes_work import REFS, WANTED, arrays_of, groups_of
from bench.commit_refs import OURS, PEER, set_documents, set_refs
from bench.datasets import kept
from bench.harness import ROOT, in_fresh_process, say
from bench.sink_places import Put

if TYPE_CHECKING:
    from pathlib import Path

    from bench.commit_refs import Layout
    from bench.harness import Report

PEER_TEXT = (
    "icechunk with its default configuration on a local folder, on a repository that it wrote. A"
    f" hundredth of the nodes are groups, the others arrays of {REFS} virtual references. Every"
    " number is from a fresh process that has imported both libraries, medians of some in turn"
)
_SCRIPT = str(ROOT / "bench" / "commit_nodes_work.py")
_GROUP = b'{"zarr_format":3,"node_type":"group","attributes":{}}'
_PARTS = ("open", "look-up", "append")
_HEADER = (
    "| what | side | opening ms | first look-up ms | first commit ms | objects put | kB |\n"
    "|---|---|---|---|---|---|---|"
)


def write(layout: Layout, spec: int, nodes: int, path: Path) -> None:
    storage = local_storage(layout.library, path)
    repository = layout.library.Repository.create(storage, spec_version=spec)
    session = repository.writable_session("main")
    asyncio.run(_set_groups(session.store, nodes))
    asyncio.run(set_documents(session.store, dict.fromkeys(arrays_of(nodes), REFS)))
    for name in arrays_of(nodes):
        set_refs(session.store, name, range(REFS))
    session.commit("nodes")


async def _set_groups(store: Any, nodes: int) -> None:
    group = default_buffer_prototype().buffer.from_bytes(_GROUP)
    await asyncio.gather(*(store.set(f"{name}/zarr.json", group) for name in groups_of(nodes)))


def repository_of(folder: Path, layout: Layout, spec: int, nodes: int) -> Path:
    path = folder / f"nodes-{layout}-{spec}-{nodes}"
    return kept(path, partial(write, layout, spec, nodes))


def once(folder: Path, layout: Layout, spec: int, nodes: int) -> tuple[dict[str, float], Put]:
    """One process's seconds of each step, and what its commit put."""
    target = folder / "written"
    shutil.rmtree(target, ignore_errors=True)
    copied(repository_of(folder, layout, spec, nodes), target)
    before = objects_in(target)
    found = in_fresh_process(_SCRIPT, ["time", layout.module, str(target)])
    put = Put.between(before, objects_in(target))
    shutil.rmtree(target)
    return found, put


def lines(folder: Path, spec: int, nodes: int, rounds: int) -> list[str]:
    sides = {"ours": OURS, "peer": PEER}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    puts = {}
    for number in range(rounds):
        say(f"{nodes:,} nodes, v{spec}: round {number + 1}")
        for name, layout in sides.items():
            found, puts[name] = once(folder, layout, spec, nodes)
            runs[name].append(found)
    rows = []
    for name, each in runs.items():
        middle = [1000 * statistics.median(run[part] for run in each) for part in _PARTS]
        put = puts[name]
        cells = (*(f"{ms:.1f}" for ms in middle), str(put.objects), f"{put.size / 1000:,.0f}")
        rows.append(f"| {nodes:,} nodes, v{spec} | {name} | {' | '.join(cells)} |")
        say(rows[-1])
    return rows


def counted(folder: Path, spec: int, few: int, many: int) -> list[str]:
    """What each node more costs us of calls and of objects that stay."""
    found = {}
    for nodes in (few, many):
        target = folder / "written"
        shutil.rmtree(target, ignore_errors=True)
        copied(repository_of(folder, OURS, spec, nodes), target)
        found[nodes] = in_fresh_process(_SCRIPT, ["count", OURS.module, str(target)])
        shutil.rmtree(target)
    more = many - few
    return [
        f"{part}: {(found[many][part][0] - found[few][part][0]) / more:.3f} calls,"
        f" {(found[many][part][1] - found[few][part][1]) / more:.3f} blocks"
        for part in _PARTS
    ]


def run(report: Report, folder: Path) -> None:
    few, many, rounds = (100, 500, 2) if report.quick else (1_000, 10_000, 5)
    report.lines.append(_HEADER)
    for spec in (1, 2):
        for nodes in (few, many):
            report.lines += lines(folder, spec, nodes, rounds)
        report.note(
            f"v{spec}, ours, for each node more between {few:,} and {many:,}, calls of functions"
            f" and memory blocks that Python still holds after it (none is to grow with nodes):"
            f" {'; '.join(counted(folder, spec, few, many))}"
        )
    report.note(f"Looked up and appended to: `{WANTED}`, of a session for writing")
