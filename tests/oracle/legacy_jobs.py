"""What icechunk 1.1.21 is asked to do, run by its own interpreter: question file, answer file."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk

from tests.oracle.dump import dump_repository
from tests.oracle.maker import make_repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.oracle import plans


def dump_all(places: list[tuple[str, tuple[str, ...]]]) -> list[dict[str, Any]]:
    return [dump_repository(icechunk, location, prefixes) for location, prefixes in places]


def make_all(made: list[tuple[plans.Plan, str]], containers: plans.Containers) -> None:
    for plan, location in made:
        make_repository(icechunk, plan, location, containers)


JOBS: dict[str, Callable[..., Any]] = {"dump_all": dump_all, "make_all": make_all}


def main(question: str, answer: str) -> None:
    icechunk.set_logs_filter("off")
    job, arguments = pickle.loads(Path(question).read_bytes())
    Path(answer).write_bytes(pickle.dumps(JOBS[job](*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
