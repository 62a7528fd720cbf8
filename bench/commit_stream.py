"""A long stream of small batches: what its writer holds, and what readers find."""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.commit_bases import base, copied
from bench.commit_refs import BATCH, OURS, PEER
from bench.commit_stream_work import LOOKUPS, SPEC, values_read, write_values
from bench.harness import ROOT, in_fresh_process, say

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness import Report

MANIFESTS, MEMORY_MIB, OPENING_MS, COLD, WARM = 200, 300, 200, 1.0, 3.0
ROUNDS = 5
PEER_TEXT = (
    "icechunk on a local folder with its default configuration, on a repository of its own with the"
    " same references in one manifest, which it wrote at once. Every number of a reader is from a"
    " fresh process that has imported both libraries, median of some in turn; a look-up is"
    " `chunk_type` of a chunk in random order, warm ones are others than the cold ones"
)
_SCRIPT = str(ROOT / "bench" / "commit_stream_work.py")


def values_folder(folder: Path) -> Path:
    return folder / "values"


def streamed(folder: Path, batches: int) -> tuple[Path, dict[str, Any]]:
    """The repository of a stream and what was seen while it was written."""
    path, told = folder / f"stream-{batches}", folder / f"stream-{batches}.json"
    if not told.exists():
        shutil.rmtree(path, ignore_errors=True)
        words = ["write", str(path), str(batches), _prefix(folder)]
        told.write_text(json.dumps(in_fresh_process(_SCRIPT, words)))
    found: dict[str, Any] = json.loads(told.read_text())
    return path, found


def _prefix(folder: Path) -> str:
    return f"{values_folder(folder).resolve().as_uri()}/"


@dataclass(frozen=True, slots=True)
class Reader:
    """A library that reads a repository."""

    name: str
    module: str
    path: Path

    def look_ups(self, refs: int) -> dict[str, float]:
        return in_fresh_process(_SCRIPT, ["read", self.module, str(self.path), str(refs)])


def run(report: Report, folder: Path, batches: int = 10_000) -> None:
    batches = 1_000 if report.quick else batches
    refs = batches * BATCH
    path, found = streamed(folder, batches)
    _report_writer(report, found, batches)
    _report_opening(report, folder, path, refs)
    _report_readers(report, folder, path, refs)
    _report_values(report, folder, path, refs)


def _report_writer(report: Report, found: dict[str, Any], batches: int) -> None:
    commits = 1000 * np.array(found["commits"])
    early, late = np.median(commits[100:1100]), np.median(commits[-1000:])
    report.note(
        f"{batches:,} commits of {BATCH} references, v{SPEC}: median {np.median(commits):.2f} ms"
        f" (early {early:.2f}, the last 1,000 {late:.2f}), p99 {np.percentile(commits, 99):.1f} ms,"
        f" maximum {commits.max():.0f} ms; session, set and commit"
        f" {1000 * statistics.median(found['whole']):.2f} ms"
    )
    report.note(
        f"**{found['manifests']}** manifests in the tip (at most {MANIFESTS}); the writer had"
        f" **{found['resident']:.0f}** MiB more resident than at its start (at most {MEMORY_MIB}),"
        f" {found['peak']:.0f} MiB at its peak"
    )


def _report_opening(report: Report, folder: Path, path: Path, refs: int) -> None:
    runs, target = [], folder / "written"
    for _ in range(ROUNDS):
        shutil.rmtree(target, ignore_errors=True)
        copied(path, target)
        runs.append(in_fresh_process(_SCRIPT, ["open", str(target), str(refs)]))
    shutil.rmtree(target)
    middle = {name: 1000 * statistics.median(each[name] for each in runs) for name in runs[0]}
    report.note(
        f"In a fresh process: Repository.open {middle['open']:.1f} ms, a writable session"
        f" **{middle['session']:.1f}** ms (at most {OPENING_MS}), its first commit"
        f" {middle['first']:.1f} ms, the next {middle['second']:.1f} ms"
    )


def _report_readers(report: Report, folder: Path, path: Path, refs: int) -> None:
    own = base(folder / "readers", PEER, SPEC, refs, prefix=_prefix(folder))
    readers = (
        Reader("ours, the stream", OURS.module, path),
        Reader("peer, its own layout", PEER.module, own),
        Reader("peer, the stream", PEER.module, path),
        Reader("ours, the peer's layout", OURS.module, own),
    )
    runs: dict[str, list[dict[str, float]]] = {reader.name: [] for reader in readers}
    for number in range(ROUNDS):
        say(f"readers: round {number + 1}")
        for reader in readers:
            runs[reader.name].append(reader.look_ups(refs))
    report.lines += [
        f"| reader | open to the last of {LOOKUPS:,} look-ups: ms | {LOOKUPS:,} more: ms |",
        "|---|---|---|",
    ]
    middle = {
        name: {part: 1000 * statistics.median(run[part] for run in found) for part in found[0]}
        for name, found in runs.items()
    }
    for name, each in middle.items():
        report.lines.append(f"| {name} | {each['cold']:,.1f} | {each['warm']:,.1f} |")
        say(report.lines[-1])
    ours, peer = middle[readers[0].name], middle[readers[1].name]
    report.note(
        f"Ours over the peer on its own layout: cold **{ours['cold'] / peer['cold']:.2f}**"
        f" (at most {COLD:g}), warm **{ours['warm'] / peer['warm']:.2f}** (at most {WARM:g})"
    )


def _report_values(report: Report, folder: Path, path: Path, refs: int) -> None:
    write_values(values_folder(folder), values_read(refs))
    for layout in (PEER, OURS):
        words = [
            "values",
            layout.module,
            str(path),
            str(values_folder(folder).resolve()),
            str(refs),
        ]
        found = in_fresh_process(_SCRIPT, words)
        report.note(
            f"{layout.module} reads the stream: {LOOKUPS:,} chunks and all {refs:,} references are"
            f" what was written; {1000 * found['chunks']:,.0f} ms and {found['refs']:.1f} s with"
            " the comparison"
        )
