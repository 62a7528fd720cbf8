"""Commits to large archives: what they cost as references, arrays, nodes and distance grow."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import (
    commit_appends,
    commit_far,
    commit_late,
    commit_nodes,
    commit_row,
    commit_stream,
    commit_wide,
)
from bench.harness import Report, data_folder

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the results, and how to make it."""

    options: str
    peer: str
    run: Callable[[Report, Path], object]


LONG = Part("--stream", commit_stream.PEER_TEXT, partial(commit_stream.run, batches=100_000))
PARTS = {
    "appends": Part("--only appends", commit_appends.PEER_TEXT, commit_appends.run),
    "row": Part("--only row", commit_row.PEER_TEXT, commit_row.run),
    "stream": Part("--only stream", commit_stream.PEER_TEXT, commit_stream.run),
    "wide": Part("--only wide", commit_wide.PEER_TEXT, commit_wide.run),
    "nodes": Part("--only nodes", commit_nodes.PEER_TEXT, commit_nodes.run),
    "far": Part("--only far", commit_far.FAR_TEXT, commit_far.run),
    "foreign": Part("--only foreign", commit_far.FOREIGN_TEXT, commit_far.run_foreign),
    "late": Part("--only late", commit_late.PEER_TEXT, commit_late.run),
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts")
    parser.add_argument("--stream", action="store_true", help="100,000 batches, and no other part")
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer rounds")
    parser.add_argument("--data", type=Path, help="keep the data in this folder, and use it again")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    parts = [LONG] if options.stream else [PARTS[name] for name in options.only]
    with data_folder(options.data) as folder:
        for part in parts:
            report = Report(f"commit_scale {part.options}", part.peer, options.quick)
            part.run(report, folder)
            report.write()


if __name__ == "__main__":
    main()
