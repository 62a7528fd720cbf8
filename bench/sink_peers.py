"""How batches of observations are stored without the sink, as good users do it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import icechunk
import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark.sql.functions as sql
import xarray as xr
import zarr
from icechunk.xarray import to_icechunk

from bench.observations import NAMES, START, STEP
from bench.sessions import CORES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import Column, DataFrame

    from bench.observations import Shape

_SPEC = 2
_UNITS = "microseconds since 1970-01-01"
_LABELS = 16_384
_START_MICROS, _STEP_MICROS = START.astype(np.int64).item(), STEP.astype(np.int64).item()


# -- the driver's pandas and xarray ---------------------------------------------------------------


def by_index(frame: pd.DataFrame) -> xr.Dataset:
    """A table as a grid, by the usual two calls."""
    found: xr.Dataset = frame.set_index(["time", "station"]).to_xarray()
    return found


def by_hand(frame: pd.DataFrame) -> xr.Dataset:
    """A table as a grid, by positions that are computed once for all variables."""
    rows, times = pd.factorize(frame["time"], sort=True)
    columns, stations = pd.factorize(frame["station"], sort=True)
    cells = rows.astype(np.int64) * len(stations) + columns
    grids = {}
    for name in NAMES:
        grid = np.full(len(times) * len(stations), np.nan, np.float32)
        grid[cells] = frame[name].to_numpy()
        grids[name] = (("time", "station"), grid.reshape(len(times), -1))
    return xr.Dataset(grids, {"time": times, "station": stations})


class XarrayAppend:
    """``toPandas``, a pivot, and an append along the time."""

    def __init__(
        self, storage: Any, shape: Shape, pivot: Callable[[pd.DataFrame], xr.Dataset]
    ) -> None:
        self._repository = icechunk.Repository.create(storage, spec_version=_SPEC)
        self._pivot = pivot
        self._encoding: dict[str, Any] = {name: {"chunks": shape.chunks} for name in NAMES}
        self._encoding["time"] = {"chunks": (_LABELS,), "units": _UNITS, "dtype": "int64"}

    def __call__(self, df: DataFrame, batch: int) -> None:
        dataset = self._pivot(df.toPandas())
        session = self._repository.writable_session("main")
        if batch:
            to_icechunk(dataset.drop_vars("station"), session, append_dim="time")
        else:
            to_icechunk(dataset, session, mode="w", encoding=self._encoding)
        session.commit(f"batch {batch}")


# -- forks of a session in the executors ----------------------------------------------------------


class ForkAndMerge:
    """Rows shuffled by chunk; each task writes its chunks through a fork of the session."""

    def __init__(self, storage: Any, shape: Shape, put: PutBlock) -> None:
        self._shape = shape
        self._put = put
        self._repository = icechunk.Repository.create(storage, spec_version=_SPEC)
        session = self._repository.writable_session("main")
        _make_arrays(session.store, shape)
        session.commit("arrays")

    def __call__(self, df: DataFrame, batch: int) -> None:
        session = self._repository.writable_session("main")
        _grow(session.store, _index_of_last(df) + 1, self._shape.stations)
        work = _ForkWriter(session.fork(), self._shape, self._put)
        rows = df.repartition(CORES, _block(self._shape))
        done = rows.mapInArrow(work, "fork binary").collect()
        session.merge(*(pickle.loads(row.fork) for row in done))
        session.commit(f"batch {batch}")


def _make_arrays(store: Any, shape: Shape) -> None:
    zarr.create_group(store)
    for name in NAMES:
        zarr.create_array(
            store,
            name=name,
            shape=(0, shape.stations),
            chunks=shape.chunks,
            dtype="float32",
            fill_value=np.nan,
            dimension_names=("time", "station"),
        )
    times: dict[str, Any] = {"units": _UNITS, "calendar": "proleptic_gregorian"}
    zarr.create_array(
        store,
        name="time",
        shape=(0,),
        chunks=(_LABELS,),
        dtype="int64",
        dimension_names=("time",),
        attributes=times,
    )
    stations = np.arange(shape.stations, dtype=np.int32)
    zarr.create_array(store, name="station", data=stations, dimension_names=("station",))


def _index_of_last(df: DataFrame) -> int:
    last = df.agg(sql.max(sql.unix_micros("time"))).collect()[0][0]
    return int(last - _START_MICROS) // _STEP_MICROS


def _grow(store: Any, length: int, stations: int) -> None:
    times = zarr.open_array(store, path="time", mode="r+")
    before = times.shape[0]
    times.resize((length,))
    times[before:] = _START_MICROS + np.arange(before, length) * _STEP_MICROS
    for name in NAMES:
        zarr.open_array(store, path=name, mode="r+").resize((length, stations))


def _block(shape: Shape) -> Column:
    """The number of a row's chunk."""
    steps, stations = shape.chunks
    across = -(-shape.stations // stations)
    row = sql.floor((sql.unix_micros("time") - _START_MICROS) / (_STEP_MICROS * steps))
    return row * across + sql.floor(sql.col("station") / stations)


def put_by_xarray(fork: Any, block: Block) -> None:
    """By the usual calls: a pivot, and a write into a region."""
    dataset = by_index(block.rows.to_pandas()).drop_vars(["time", "station"])
    (_, (times, stations)) = _region(block.times, block.stations)
    to_icechunk(dataset, fork, region={"time": times, "station": stations})


def put_by_hand(fork: Any, block: Block) -> None:
    """By positions, which are computed once for all variables."""
    at, place = _region(block.times, block.stations)
    for name in NAMES:
        grid = np.full([s.stop - s.start for s in place], np.nan, np.float32)
        grid[at] = block.rows[name].to_numpy()
        zarr.open_array(fork.store, path=name, mode="r+")[place] = grid


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one chunk, and their places."""

    rows: pa.Table
    times: Any
    stations: Any


PutBlock: TypeAlias = "Callable[[Any, Block], None]"


@dataclass(frozen=True, slots=True)
class _ForkWriter:
    """The work of one task: it gives back the fork with what it wrote."""

    fork: Any
    shape: Shape
    put: PutBlock

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if batches := list(batches):
            self._write(pa.Table.from_batches(batches))
            yield pa.RecordBatch.from_pydict({"fork": [pickle.dumps(self.fork)]})

    def _write(self, rows: pa.Table) -> None:
        micros = rows["time"].cast(pa.int64()).to_numpy()
        times = (micros - _START_MICROS) // _STEP_MICROS
        stations = rows["station"].to_numpy().astype(np.int64)
        for chosen in self._by_block(times, stations):
            self.put(self.fork, Block(rows.take(chosen), times[chosen], stations[chosen]))

    def _by_block(self, times: Any, stations: Any) -> list[Any]:
        """The rows of each chunk."""
        across = -(-self.shape.stations // self.shape.chunks[1])
        blocks = times // self.shape.chunks[0] * across + stations // self.shape.chunks[1]
        blocks -= blocks.min()
        order = np.argsort(blocks.astype(np.uint16), kind="stable")
        counts = np.bincount(blocks)
        return np.split(order, np.cumsum(counts[counts > 0])[:-1])


def _region(times: Any, stations: Any) -> tuple[Any, tuple[slice, slice]]:
    """Places within the smallest region that has all of them, and that region."""
    first, west = times.min(), stations.min()
    region = slice(first, times.max() + 1), slice(west, stations.max() + 1)
    return (times - first, stations - west), region


# -- Spark alone ----------------------------------------------------------------------------------


def take(df: DataFrame, _: int) -> None:
    """All rows to the driver, which stores none."""
    df.toArrow()


def shuffle(df: DataFrame, _: int, shape: Shape) -> None:
    """All rows to Python workers, those of a chunk to one task, which stores none."""
    df.repartition(CORES, _block(shape)).mapInArrow(_count, "rows long").toArrow()


def _count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(map(len, batches))]})
