"""Streams whose new arrays are split by stored rules, and what they left in a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

import icechunk_stream as ic
from icechunk_stream.config import SplitAxis, SplitPathMatches
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.stream.batch import Batches, StreamSettings
from icechunk_stream.stream.layout import Rows, fixed, regular
from icechunk_stream.stream.ledger import Call
from icechunk_stream.stream.outcomes import Committed
from icechunk_stream.stream.row_source import RowsInMemory

if TYPE_CHECKING:
    from icechunk_stream.config import SplitSizes
    from icechunk_stream.storage import Storage

# One chunk for each station: a cell has 131,072 / 16,384 = 8 chunks of time.
STATIONS = np.arange(16_384)
CELL = 8
LAYOUT = Rows(
    dims={"time": regular("2024-01-01", "1h"), "station": fixed(STATIONS)},
    variables={"temp": "float32", "rain.mm": "float32"},
    chunks={"time": 1, "station": 1},
)
RULES: SplitSizes = (
    (
        SplitPathMatches(r"^/data/(?:rain\.mm|temp)$"),
        ((SplitAxis(0), CELL),),
    ),
    (SplitPathMatches("^/data/time$"), ((SplitAxis(0), 131_072),)),
)


def rows(*hours: int) -> RowsInMemory:
    """A row for one station at each hour."""
    frame = pd.DataFrame(
        {
            "time": pd.Timestamp("2024-01-01") + pd.to_timedelta(hours, unit="h"),
            "station": np.full(len(hours), 5),
            "temp": np.array(hours, "f4"),
            "rain.mm": np.array(hours, "f4") / 2,
        }
    )
    return RowsInMemory(pa.Table.from_pandas(frame, preserve_index=False))


def open_stream(storage: Storage, app: str = "obs", **options: Any) -> Batches:
    return Batches.open(storage, StreamSettings(LAYOUT, app, group="/data", **options))


def write(batches: Batches, number: int, *hours: int, app: str = "obs") -> Committed:
    outcome = batches.write(Call(app, f"query of {app}", number), rows(*hours))
    assert isinstance(outcome, Committed)
    return outcome


def stored(storage: Storage) -> SplitSizes:
    config = ic.Repository.fetch_config(storage)
    splitting = config and config.manifest and config.manifest.splitting
    return (splitting.split_sizes if splitting else None) or ()


def split_by(*rules: tuple[str, int]) -> ic.RepositoryConfig:
    condition, axis = ic.ManifestSplitCondition, ic.ManifestSplitDimCondition
    sizes: Any = {condition.path_matches(regex): {axis.Axis(0): size} for regex, size in rules}
    splitting = ic.ManifestSplittingConfig.from_dict(sizes)
    return ic.RepositoryConfig(manifest=ic.ManifestConfig(splitting=splitting))


def extents(storage: Storage, path: str) -> list[list[list[int]]]:
    repository = ic.Repository.open(storage)
    id = SnapshotId.parse(repository.lookup_branch("main"))
    node = repository._assets.snapshot(id).nodes.get(path)
    assert isinstance(node, ArrayNode)
    boxes: list[list[list[int]]] = node.manifests.extents.tolist()
    return boxes


def cells(storage: Storage, path: str, size: int = CELL) -> set[int]:
    """The cells along the time that manifests lie in, each within one."""
    times = [box[0] for box in extents(storage, path)]
    assert all(first // size == (end - 1) // size for first, end in times)
    return {first // size for first, _ in times}


def config_writes(storage: Storage) -> int:
    """How often a configuration was stored since the repository was made."""
    repository = ic.Repository.open(storage)
    if repository.spec_version == 2:
        return sum(each.kind == ic.UpdateType.ConfigChanged() for each in repository.ops_log())
    kept = [each for each in storage.list("overwritten/") if "config.yaml" in each.key]
    return len(kept) + (storage.stat("config.yaml") is not None)
