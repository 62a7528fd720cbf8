"""Commits to large archives: what they cost as references, arrays, nodes and distance grow."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import commit_appends, commit_row, commit_stream
from bench.commit_plot import plot
from bench.harness import Report, data_folder


def appends(folder: Path, *, quick: bool) -> None:
    report = Report("commit_scale --only appends", commit_appends.PEER_TEXT, quick)
    found = commit_appends.run(report, folder)
    report.write()
    plot(found, quick=quick)


def row(folder: Path, *, quick: bool) -> None:
    report = Report("commit_scale --only row", commit_row.PEER_TEXT, quick)
    commit_row.run(report, folder)
    report.write()


def stream(folder: Path, *, quick: bool) -> None:
    report = Report("commit_scale --only stream", commit_stream.PEER_TEXT, quick)
    commit_stream.run(report, folder, 1_000 if quick else 10_000)
    report.write()


def long_stream(folder: Path, *, quick: bool) -> None:
    report = Report("commit_scale --stream", commit_stream.PEER_TEXT, quick)
    commit_stream.run(report, folder, 2_000 if quick else 100_000)
    report.write()


CASES = {"appends": appends, "row": row, "stream": stream}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="these cases")
    parser.add_argument("--stream", action="store_true", help="100,000 batches, and no other case")
    parser.add_argument("--quick", action="store_true", help="smaller data and fewer rounds")
    parser.add_argument("--data", type=Path, help="keep the data in this folder, and use it again")
    return parser.parse_args()


def main() -> None:
    options = parsed()
    with data_folder(options.data) as folder:
        if options.stream:
            long_stream(folder, quick=options.quick)
            return
        for name in options.only:
            CASES[name](folder, quick=options.quick)


if __name__ == "__main__":
    main()
