"""What icechunk 1.1.21 is asked to do, run by its own interpreter: question file, answer file."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import icechunk
import xarray as xr

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


def open_with_xarray(location: str) -> dict[str, Any]:
    """What xarray reads of the root group, as plain objects; a warning is an error."""
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(location))
    store = repository.readonly_session("main").store
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return dict(xr.open_zarr(store, consolidated=False).load().to_dict())


JOBS: dict[str, Callable[..., Any]] = {
    "dump_all": dump_all,
    "make_all": make_all,
    "open_with_xarray": open_with_xarray,
}


def main(question: str, answer: str) -> None:
    icechunk.set_logs_filter("off")
    job, arguments = pickle.loads(Path(question).read_bytes())
    Path(answer).write_bytes(pickle.dumps(JOBS[job](*arguments)))


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Under load the old library now and then aborts while its interpreter ends.
    os._exit(0)
