"""Arrays of a layout: made as xarray would, opened by the reference, honoured where they exist."""

from __future__ import annotations

import json
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import icechunk
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
import zarr
from zarr.codecs import ZstdCodec

from icechunk_stream import Repository, local_filesystem_storage
from icechunk_stream.errors import LayoutError
from icechunk_stream.stream.arrays import open_group
from icechunk_stream.stream.layout import Rows, Variable, append, fixed, regular
from tests.oracle.libraries import SPEC_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from icechunk_stream.session import Session

pytestmark = pytest.mark.compat

GROUP = "/data/obs"
SCHEMA = pa.schema(
    {
        "time": pa.timestamp("us", "UTC"),
        "station": pa.string(),
        "lat": pa.float64(),
        "temp": pa.float64(),
        "count": pa.int32(),
        "packed": pa.float64(),
        "flag": pa.bool_(),
        "seen": pa.timestamp("ns"),
        "note": pa.string(),
    }
)
DIMS = {"time": append(), "station": append(), "lat": fixed([1.5, 2.5, 4.0])}
VARIABLES = {
    "temp": Variable("float32", attrs={"units": "K"}),
    "count": Variable(dims=("time", "station")),
    "packed": Variable("int16", scale_factor=0.01, add_offset=20.0, fill_value=-999),
    "flag": "bool",
    "seen": Variable(dims=("station",)),
    "note": Variable("string", dims=("station",)),
}


@pytest.fixture(params=SPEC_VERSIONS)
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Repository:
    storage = local_filesystem_storage(str(tmp_path), durability="os")
    return Repository.create(storage, spec_version=request.param)


def layout(**options: Any) -> Rows:
    given: dict[str, Any] = {"dims": DIMS, "variables": VARIABLES, "chunks": {"time": 4}}
    return Rows(**(given | options))


def reference_store(folder: Path) -> icechunk.IcechunkStore:
    storage = icechunk.local_filesystem_storage(str(folder))
    return icechunk.Repository.open(storage).readonly_session("main").store


def read(folder: Path, group: str = GROUP) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened: xr.Dataset = xr.open_zarr(reference_store(folder), group=group, consolidated=False)
        return opened.load()


def document(session: Session, path: str) -> dict[str, Any]:
    node = session.reader.node(path)
    assert node is not None
    found: dict[str, Any] = json.loads(node.user_data)
    return found


def written_by_xarray(repository: Repository, dataset: xr.Dataset) -> Session:
    session = repository.writable_session("main")
    dataset.to_zarr(session.store, group=GROUP, consolidated=False, zarr_format=3)
    session.commit("xarray")
    return repository.writable_session("main")


def dataset() -> xr.Dataset:
    times = np.array(["2024-01-01T00", "2024-01-01T06"], "M8[ns]")
    found = xr.Dataset(
        {
            "temp": (("time", "lat"), np.ones((2, 3), "f4"), {"units": "K"}),
            "count": (("time", "lat"), np.ones((2, 3), "i4")),
            "flag": (("time", "lat"), np.ones((2, 3), np.bool_)),
            "packed": (("lat", "time"), np.ones((3, 2), "f8")),
        },
        {"time": times, "lat": [1.5, 2.5, 4.0]},
        {"title": "observations"},
    )
    found.time.encoding = {"units": "minutes since 2000-01-01", "dtype": "int64", "chunks": (8,)}
    found.temp.encoding = {"chunks": (5, 3)}
    found.packed.encoding = {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}
    return found


def test_the_reference_opens_what_was_made_without_a_warning(
    repository: Repository, tmp_path: Path
) -> None:
    session = repository.writable_session("main")
    open_group(session, layout(attrs={"title": "t"}), GROUP, SCHEMA)
    session.commit("made")

    found = read(tmp_path)
    assert dict(found.sizes) == {"time": 0, "station": 0, "lat": 3}
    assert found.time.dtype.kind == found.seen.dtype.kind == "M"
    assert found.time.encoding["units"] == "microseconds since 1970-01-01"
    assert found.seen.encoding["units"] == "nanoseconds since 1970-01-01"
    assert found.lat.values.tolist() == [1.5, 2.5, 4.0]
    dtypes = [str(found[name].dtype) for name in ("temp", "count", "flag")]
    assert dtypes == ["float32", "int32", "bool"]
    assert found.packed.dims == ("time", "station", "lat")
    assert found.packed.encoding["_FillValue"] == -999
    assert found.attrs == {"title": "t"}
    assert found.temp.attrs == {"units": "K"}


def test_cells_that_were_never_written_read_as_missing(
    repository: Repository, tmp_path: Path
) -> None:
    session = repository.writable_session("main")
    open_group(session, layout(), GROUP, SCHEMA)
    for name, sizes in {
        "time": (2,),
        "station": (2,),
        "temp": (2, 2, 3),
        "packed": (2, 2, 3),
    }.items():
        zarr.open_array(session.store, path=f"{GROUP}/{name}").resize(sizes)
    for name, sizes in {"count": (2, 2), "flag": (2, 2, 3), "seen": (2,), "note": (2,)}.items():
        zarr.open_array(session.store, path=f"{GROUP}/{name}").resize(sizes)
    session.commit("longer")

    found = read(tmp_path)
    for name in ("temp", "packed", "seen"):
        assert bool(found[name].isnull().all())
    assert found.note.values.tolist() == ["", ""]
    assert not found.flag.any()
    assert not found["count"].any()


def test_a_second_look_finds_the_same_and_changes_nothing(repository: Repository) -> None:
    session = repository.writable_session("main")
    first = open_group(session, layout(), GROUP, SCHEMA)
    session.commit("made")
    session = repository.writable_session("main")
    again = open_group(session, layout(), GROUP, SCHEMA)
    assert again == first
    assert pickle.loads(pickle.dumps(again)) == first
    assert not session.has_uncommitted_changes


def test_arrays_are_those_that_xarray_makes_of_a_template(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
) -> None:
    template = dataset()
    template["packed"] = template.packed.transpose("time", "lat")
    template.packed.encoding = {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}
    session = repository.writable_session("main")
    made = Rows.like(template, {"time": append()}, chunks=None)
    open_group(session, made, GROUP)

    storage = local_filesystem_storage(str(tmp_path_factory.mktemp("theirs")), durability="os")
    theirs = written_by_xarray(Repository.create(storage), template)
    for name in ("time", "lat", "temp", "count", "flag", "packed"):
        ours, wanted = (document(each, f"{GROUP}/{name}") for each in (session, theirs))
        same = ["data_type", "attributes", "dimension_names", "codecs"]
        same += ["chunk_grid"] if name in ("time", "temp") else []
        assert {key: ours[key] for key in same} == {key: wanted[key] for key in same}
    assert document(session, GROUP)["attributes"] == document(theirs, GROUP)["attributes"]


def test_a_template_that_was_opened_makes_the_same_arrays_again(
    repository: Repository, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    template = dataset().drop_vars("packed")
    template.temp.encoding |= {"compressors": (), "shards": (10, 3)}
    theirs = written_by_xarray(repository, template)
    made = Rows.like(read(tmp_path), {"time": append()})
    storage = local_filesystem_storage(str(tmp_path_factory.mktemp("ours")), durability="os")
    session = Repository.create(storage).writable_session("main")
    open_group(session, made, GROUP)
    for name in ("time", "lat", "temp", "count", "flag"):
        ours, wanted = (document(each, f"{GROUP}/{name}") for each in (session, theirs))
        assert ours | {"shape": None} == wanted | {"shape": None}


def test_shards_codecs_and_chunks_are_as_the_layout_says(repository: Repository) -> None:
    session = repository.writable_session("main")
    codecs = ZstdCodec(level=7)
    variables = {"temp": Variable("f4", compressors=[codecs], shards={"lat": 6}, chunks={"lat": 2})}
    made = layout(variables=variables, shards={"time": 8})
    target = open_group(session, made, GROUP, SCHEMA).targets[0]
    array = zarr.open_array(session.store, path=target.path)
    assert array.chunks == (4, *made.chunk_shape("temp")[1:])
    assert array.shards == target.unit == (8, made.chunk_shape("temp")[1], 6)
    assert array.compressors == (codecs,)


class TestExisting:
    def test_what_exists_is_honoured(self, repository: Repository) -> None:
        session = written_by_xarray(repository, dataset())
        variables = {"temp": "float64", "packed": "float32", "flag": "bool"}
        made = Rows({"time": append(), "lat": fixed()}, variables, chunks={"time": 2})
        opened = open_group(session, made, GROUP, SCHEMA)

        time, lat = opened.axes
        assert time.labels is not None
        assert lat.labels is not None
        assert (
            time.encoding.decode(time.labels.to_numpy())
            .cast(pa.timestamp("ns"))
            .to_numpy(zero_copy_only=False)
            .tolist()
            == dataset().time.values.tolist()
        )
        assert (time.size, lat.labels.to_pylist()) == (2, [1.5, 2.5, 4.0])
        temp, packed, flag = opened.targets
        assert (temp.shape, temp.unit) == ((2, 3), (5, 3))
        assert temp.encoding.dtype == np.dtype("f4")
        assert (packed.dims, packed.shape) == (("lat", "time"), (3, 2))
        found = packed.encoding.encode(pa.array([1.0, float("nan")]))
        assert found.values.tolist() == [2, -1]
        assert flag.encoding.encode(pa.array([True])).values.tolist() == [True]
        assert not session.has_uncommitted_changes

    def test_a_new_variable_is_as_long_as_the_others(
        self, repository: Repository, tmp_path: Path
    ) -> None:
        session = written_by_xarray(repository, dataset())
        made = Rows({"time": append(), "lat": fixed([1.5, 2.5, 4])}, {"new": "float32"})
        assert open_group(session, made, GROUP).targets[0].shape == (2, 3)
        session.commit("new")
        assert bool(read(tmp_path).new.isnull().all())

    def test_a_regular_dimension_may_go_on_where_its_grid_is_stored(
        self, repository: Repository
    ) -> None:
        session = written_by_xarray(repository, dataset())
        made = Rows({"time": regular("2024-01-01", "6h"), "lat": fixed()}, {"temp": "f4"})
        axis = open_group(session, made, GROUP).axes[0]
        assert (axis.size, axis.labels) == (2, None)

    @pytest.mark.parametrize(
        ("dims", "variables", "message"),
        [
            ({"time": append()}, {"temp": "f4"}, "dimensions"),
            ({"time": append(), "x": fixed([1])}, {"temp": "f4"}, "dimensions"),
            ({"temp": append()}, {"v": "f4"}, r"dimensions \('time', 'lat'\)"),
            ({"time": append(), "lat": fixed([1.5])}, {"temp": "f4"}, "other labels"),
            ({"time": regular("2024-01-01", "1h")}, {"v": "f4"}, "start and the step"),
            ({"time": regular("2023-01-01", "6h")}, {"v": "f4"}, "start and the step"),
            ({"time": regular("2024-01-01", "1s")}, {"v": "f4"}, "finer units|start and"),
            ({"time": regular(0, 1)}, {"v": "f4"}, "of times"),
            ({"level": fixed()}, {"v": "f4"}, "list them"),
        ],
    )
    def test_what_does_not_fit_is_refused(
        self, repository: Repository, dims: Any, variables: Any, message: str
    ) -> None:
        session = written_by_xarray(repository, dataset())
        with pytest.raises(LayoutError, match=message):
            open_group(session, Rows(dims, variables), GROUP)

    def test_columns_that_an_array_cannot_hold_are_refused(self, repository: Repository) -> None:
        session = written_by_xarray(repository, dataset())
        made = Rows({"time": append(), "lat": fixed()}, {"temp": "f4"})
        schema = SCHEMA.set(3, pa.field("temp", pa.timestamp("us")))
        with pytest.raises(LayoutError, match="column 'temp' of the variable 'temp'"):
            open_group(session, made, GROUP, schema)
        with pytest.raises(LayoutError, match="lack the column 'lat'"):
            open_group(session, made, GROUP, SCHEMA.remove(2))
        with pytest.raises(LayoutError, match="column 'time' of labels"):
            open_group(session, made, GROUP, SCHEMA.set(0, pa.field("time", pa.int64())))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda d: d.pop("dimension_names"), "dimension names"),
            (lambda d: d["dimension_names"].__setitem__(0, None), "dimension names"),
            (lambda d: d["shape"].__setitem__(0, 7), "resize one of them"),
            (lambda d: d["attributes"].update(_Unsigned="true"), "_Unsigned"),
            (lambda d: d["attributes"].update(scale_factor="x"), "scale_factor 'x'"),
            (lambda d: d["attributes"].update(_FillValue="x"), "_FillValue 'x'"),
            (lambda d: d["attributes"].update(units="days since 2000-1-1"), "calendar '360_day'"),
        ],
    )
    def test_arrays_that_rows_cannot_go_into_are_refused(
        self, repository: Repository, change: Callable[[Any], Any], message: str
    ) -> None:
        session = written_by_xarray(repository, dataset())
        path = f"{GROUP}/temp"
        changed = document(session, path)
        changed["attributes"]["calendar"] = "360_day"
        change(changed)
        session.edits.set_document(path, json.dumps(changed).encode())
        made = Rows({"time": append(), "lat": fixed()}, {"temp": "f4"})
        with pytest.raises(LayoutError, match=f"{path}.*{message}"):
            open_group(session, made, GROUP)

    def test_a_group_and_an_array_do_not_stand_for_each_other(self, repository: Repository) -> None:
        session = written_by_xarray(repository, dataset())
        with pytest.raises(LayoutError, match="is an array"):
            open_group(session, layout(), f"{GROUP}/temp/below", SCHEMA)
        zarr.create_group(session.store, path=f"{GROUP}/deep")
        with pytest.raises(LayoutError, match="is a group"):
            open_group(session, Rows({"time": append()}, {"deep": "f4"}), GROUP)

    def test_a_dtype_that_nothing_tells_is_asked_for(self, repository: Repository) -> None:
        session = repository.writable_session("main")
        with pytest.raises(LayoutError, match=r"'time' .*give dtype"):
            open_group(session, layout(), GROUP)
        made = Rows({"time": append(dtype="datetime64")}, {"v": Variable()})
        with pytest.raises(LayoutError, match="'v' has no dtype"):
            open_group(session, made, GROUP)


def test_arrays_on_irregular_chunks_are_refused(tmp_path: Path) -> None:
    repository = Repository.create(local_filesystem_storage(str(tmp_path)), spec_version=2)
    session = written_by_xarray(repository, dataset())
    changed = document(session, f"{GROUP}/temp")
    changed["chunk_grid"] = {
        "name": "rectilinear",
        "configuration": {"kind": "inline", "chunk_shapes": [[1, 1], [3]]},
    }
    session.edits.set_document(f"{GROUP}/temp", json.dumps(changed).encode())
    made = Rows({"time": append(), "lat": fixed()}, {"temp": "f4"})
    with pytest.raises(LayoutError, match="rectilinear"):
        open_group(session, made, GROUP)
