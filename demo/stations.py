"""Readings of made-up stations, and how they arrive: out of order, late, twice, and corrected."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

START = np.datetime64("2026-01-01T00", "us")
LABELS = ["time", "station"]
VARIABLES = ["temp", "wind"]
# What Spark is told of the files. "sent" orders rows that say different things of one reading.
COLUMNS = "time timestamp, station string, temp float, wind float, sent long"
DAYS_PER_BATCH = 2
# Shares of all readings.
_LOST, _LATE, _REPEATED, _CORRECTED = 0.03, 0.10, 0.06, 0.02
_MOST_LATE = 3


@dataclass(frozen=True)
class Plan:
    """How much is sent."""

    days: int
    stations: int

    @property
    def batches(self) -> int:
        return -(-self.days // DAYS_PER_BATCH)


@dataclass(frozen=True)
class Traffic:
    """All rows in the order in which they are sent, each with the batch that brings it."""

    rows: pd.DataFrame

    @property
    def truth(self) -> pd.DataFrame:
        """What was said last of each reading: what has to be in the repository."""
        last = self.rows.sort_values("sent").drop_duplicates(LABELS, keep="last")
        return last[LABELS + VARIABLES].sort_values(LABELS, ignore_index=True)

    @property
    def sizes(self) -> dict[int, int]:
        """Rows of each batch."""
        return {int(batch): len(rows) for batch, rows in self.rows.groupby("batch")}

    def store(self, folder: Path) -> None:
        """One file for each batch."""
        folder.mkdir(parents=True)
        for batch, rows in self.rows.groupby("batch"):
            path = folder / f"{batch:04}.parquet"
            pq.write_table(pa.Table.from_pandas(rows.drop(columns="batch"), _SCHEMA), path)
            # Spark takes files in the order of their times.
            os.utime(path, (1_700_000_000 + int(batch),) * 2)


_SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("station", pa.string()),
        ("temp", pa.float32()),
        ("wind", pa.float32()),
        ("sent", pa.int64()),
    ]
)


def traffic(plan: Plan, seed: int = 0) -> Traffic:
    """The same rows for the same plan."""
    random = np.random.default_rng(seed)
    readings = _readings(plan, random)
    readings = readings[random.random(len(readings)) >= _LOST]
    on_time = _days(readings) // DAYS_PER_BATCH
    by = random.integers(1, _MOST_LATE + 1, len(readings))
    late = by * (random.random(len(readings)) < _LATE)
    first = readings.assign(batch=np.minimum(on_time + late, plan.batches - 1))
    again = _later(first.sample(frac=_REPEATED, random_state=seed), plan, random)
    better = _later(first.sample(frac=_CORRECTED, random_state=seed + 1), plan, random)
    better["temp"] += np.float32(0.5)
    rows = pd.concat([first, again, better], ignore_index=True)
    shuffled = rows.iloc[random.permutation(len(rows))].sort_values("batch", kind="stable")
    return Traffic(shuffled.assign(sent=range(len(rows))))


def _readings(plan: Plan, random: np.random.Generator) -> pd.DataFrame:
    """One for every hour and station; every third station begins only after some days."""
    hours = np.arange(24 * plan.days)
    names = [f"station-{number:03}" for number in range(plan.stations)]
    index = pd.MultiIndex.from_product([hours, names], names=["hour", "station"])
    frame = index.to_frame(index=False)
    hour, number = frame["hour"].to_numpy(), np.tile(np.arange(plan.stations), len(hours))
    begins = np.where(number % 3 == 2, number % max(plan.days, 1) * 12, 0)
    frame["time"] = START + hour.astype("timedelta64[h]")
    frame["temp"] = _temperature(hour, number, random)
    frame["wind"] = random.gamma(2.0, 2.5, len(frame)).astype("f4").round(1)
    return frame[hour >= begins].drop(columns="hour")


def _temperature(
    hour: npt.NDArray[np.int64], number: npt.NDArray[np.int64], random: np.random.Generator
) -> npt.NDArray[np.float32]:
    day = 6 * np.sin((hour % 24 - 9) / 24 * 2 * np.pi)
    fronts = 5 * np.sin(hour / 97 + number / 9)
    noise = random.normal(0, 0.6, len(hour))
    found: npt.NDArray[np.float32] = (4 + day + fronts + noise).astype("f4")
    return found.round(2)


def _days(readings: pd.DataFrame) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = (readings["time"].to_numpy() - START) // np.timedelta64(1, "D")
    return found


def _later(rows: pd.DataFrame, plan: Plan, random: np.random.Generator) -> pd.DataFrame:
    """The same rows, in the same batch or up to two later."""
    batch = rows["batch"] + random.integers(0, 3, len(rows))
    return rows.assign(batch=np.minimum(batch, plan.batches - 1))
