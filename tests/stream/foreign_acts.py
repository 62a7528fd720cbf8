"""What another writer does to the arrays of a stream, by zarr and xarray, and to their model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import xarray as xr
import zarr
from icechunk.xarray import to_icechunk
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

if TYPE_CHECKING:
    from collections.abc import Callable

    import icechunk

    from tests.stream.cell_model import Group

GROUP = "data"


@dataclass(frozen=True)
class Theirs:
    """The session of the other writer, and what it should leave behind."""

    session: icechunk.Session
    model: Group

    def array(self, name: str) -> Any:
        return zarr.open_array(self.session.store, path=f"{GROUP}/{name}", mode="r+")

    @property
    def group(self) -> zarr.Group:
        return zarr.open_group(self.session.store, path=GROUP, mode="r+")

    @property
    def along_time(self) -> list[str]:
        return [name for name, array in self.model.arrays.items() if "time" in array.dims]

    def put(self, name: str, values: Any, at: tuple[int, ...]) -> None:
        block = np.asarray(values)
        ends = zip(at, block.shape, strict=True)
        self.array(name)[tuple(slice(first, first + count) for first, count in ends)] = block
        self.model.put(name, block, at)


def add_bystanders(theirs: Theirs) -> None:
    """Arrays that the stream knows nothing of, with all of their cells written."""
    length = len(theirs.model.labels["time"])
    flag = np.arange(1, length + 1, dtype="i2")
    spread = np.arange(length * 4, dtype="f8").reshape(4, length)
    add_array(theirs, "flag", ("time",), flag, -1)
    add_array(theirs, "spread", ("station", "time"), spread, np.nan)


def add_array(theirs: Theirs, name: str, dims: tuple[str, ...], values: Any, fill: Any) -> None:
    chunks = tuple(min(3, length) for length in values.shape)
    made = theirs.group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=chunks,
        fill_value=fill,
        dimension_names=dims,
    )
    made[...] = values
    theirs.model.add(name, dims, fill, values)


def attributes(theirs: Theirs) -> None:
    """Attributes of the group, of an array, and of a coordinate."""
    theirs.group.attrs["title"] = "theirs"
    theirs.array("temp").attrs["note"] = ["ours", 1]
    theirs.array("time").attrs["axis"] = "T"
    theirs.model.attributes |= {
        "": {"title": "theirs"},
        "temp": {"note": ["ours", 1]},
        "time": {"axis": "T"},
    }


def array_along_time(theirs: Theirs) -> None:
    length = len(theirs.model.labels["time"])
    add_array(theirs, "wind", ("time",), np.arange(length, dtype="f4") / 2, np.nan)


def array_elsewhere(theirs: Theirs) -> None:
    theirs.model.labels["height"] = list(range(5))
    add_array(theirs, "profile", ("height",), np.arange(5, dtype="i8") + 7, 0)
    theirs.model.labels["station_too"] = list(range(4))
    add_array(theirs, "height_of", ("station_too",), np.arange(4, dtype="f8"), np.nan)


def other_chunks(theirs: Theirs) -> None:
    """Whole chunks, and single cells of chunks that the next batch does not touch."""
    theirs.put("temp", np.full((4, 2), 500.0), (0, 0))
    theirs.put("count", [[-5]], (1, 3))


def chunks_that_the_batch_patches(theirs: Theirs) -> None:
    theirs.put("temp", [[501.0, 502.0]], (5, 0))
    theirs.put("count", [[-6, -7, -8, -9]], (4, 0))
    theirs.put("flag", np.array([99], "i2"), (5,))


def _append(theirs: Theirs, times: list[int]) -> None:
    first, count = len(theirs.model.labels["time"]), len(times)
    values = np.arange(count * 4, dtype="f8").reshape(count, 4) + 1000
    data = {
        "temp": (("time", "station"), values),
        "count": (("time", "station"), values.astype("i4")),
        "flag": (("time",), np.full(count, 55, "i2")),
        "spread": (("station", "time"), values.T * 2),
    }
    dataset = xr.Dataset(data, {"time": ("time", np.array(times))})
    to_icechunk(dataset, theirs.session, group=GROUP, append_dim="time")
    theirs.model.labels["time"] += times
    for name, (dims, block) in data.items():
        at = tuple(first if dim == "time" else 0 for dim in dims)
        theirs.model.put(name, block, at)


def append_the_labels_of_the_batch(theirs: Theirs) -> None:
    _append(theirs, [6, 7])


def append_beyond_the_batch(theirs: Theirs) -> None:
    _append(theirs, [6, 7, 8, 9, 10])


def append_other_labels(theirs: Theirs) -> None:
    _append(theirs, [100, 101, 102])


def _truncate(theirs: Theirs, length: int) -> None:
    for name in ("time", *theirs.along_time):
        array = theirs.array(name)
        dims = array.metadata.dimension_names
        array.resize(
            tuple(
                length if dim == "time" else size
                for dim, size in zip(dims, array.shape, strict=True)
            )
        )
    theirs.model.truncate("time", length)


def truncate_within_the_last_chunk(theirs: Theirs) -> None:
    _truncate(theirs, 5)


def truncate_within_the_first_chunk(theirs: Theirs) -> None:
    _truncate(theirs, 2)


def truncate_at_a_chunk(theirs: Theirs) -> None:
    _truncate(theirs, 4)


def truncate_to_nothing(theirs: Theirs) -> None:
    _truncate(theirs, 0)


def truncate_the_documents_only(theirs: Theirs) -> None:
    """As a tool does that knows no chunks: what is outside of the shapes stays where it was."""
    for name in ("time", *theirs.along_time):
        key = f"{GROUP}/{name}/zarr.json"
        prototype = default_buffer_prototype()
        found = sync(theirs.session.store.get(key, prototype))
        assert found is not None
        document = json.loads(found.to_bytes())
        document["shape"][document["dimension_names"].index("time")] = 1
        text = prototype.buffer.from_bytes(json.dumps(document).encode())
        sync(theirs.session.store.set(key, text))
    theirs.model.truncate("time", 1)


def delete_an_array(theirs: Theirs) -> None:
    del theirs.group["temp"]
    theirs.model.forget("temp")
    # The stream makes it anew for its next rows.
    theirs.model.add("temp", ("time", "station"), np.nan)


def replace_an_array(theirs: Theirs) -> None:
    """By one with another type, other chunks, and its dimensions the other way round."""
    length = len(theirs.model.labels["time"])
    del theirs.group["count"]
    theirs.model.forget("count")
    values = np.arange(length * 4, dtype="f8").reshape(4, length) - 300
    add_array(theirs, "count", ("station", "time"), values, -1.0)


def delete_the_group(theirs: Theirs) -> None:
    del zarr.open_group(theirs.session.store, mode="r+")[GROUP]
    theirs.model.labels["time"].clear()
    theirs.model.arrays.clear()
    theirs.model.add("temp", ("time", "station"), np.nan)
    theirs.model.add("count", ("time", "station"), 0)


def delete_a_coordinate(theirs: Theirs) -> None:
    del theirs.group["time"]


def truncate_one_array(theirs: Theirs) -> None:
    theirs.array("temp").resize((5, 4))


def lengthen_a_fixed_dimension(theirs: Theirs) -> None:
    for name in ("station", "temp", "count"):
        array = theirs.array(name)
        array.resize((*array.shape[:-1], 5))


def lose_a_dimension(theirs: Theirs) -> None:
    """An array in the place of ours that rows cannot go into."""
    del theirs.group["temp"]
    theirs.group.create_array("temp", shape=(6,), dtype="f8", dimension_names=("time",))


def put_a_group_there(theirs: Theirs) -> None:
    del theirs.group["temp"]
    theirs.group.create_group("temp")


def delete_everything(theirs: Theirs) -> None:
    root = zarr.open_group(theirs.session.store, mode="r+")
    for name in list(root):
        del root[name]


Act: TypeAlias = "Callable[[Theirs], None]"

GOES_ON: tuple[Act, ...] = (
    attributes,
    array_along_time,
    array_elsewhere,
    other_chunks,
    chunks_that_the_batch_patches,
    append_the_labels_of_the_batch,
    append_beyond_the_batch,
    truncate_within_the_last_chunk,
    truncate_within_the_first_chunk,
    truncate_at_a_chunk,
    truncate_to_nothing,
    truncate_the_documents_only,
    delete_an_array,
    replace_an_array,
    delete_the_group,
)
