"""Byte ranges of every kind of payload, at every edge of its length, as the reference cuts them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from tests.oracle import plans
from tests.oracle.dump import open_repository
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.oracle.maker import make_repository
from tests.oracle.manifest_files import Ref, id_text, manifest_file
from tests.oracle.outcomes import answer, refused

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest

pytestmark = pytest.mark.compat

PAYLOAD = b"0123456789"
INVALID = refused("invalid-byte-range")
DOCUMENT = "a/zarr.json"
KEYS = {
    "inline": "a/c/0",
    "native": "a/c/1",
    "native at an offset": "a/c/2",
    "virtual at an offset": "a/c/3",
    "never written": "a/c/4",
    "metadata": DOCUMENT,
}
EDGES = ("0", "1", "L-1", "L", "L+1")
HUGE = ("2**63", "2**64-1")
RANGES = [("range", start, end) for start in EDGES for end in EDGES]
OFFSETS = [("offset", start, "") for start in (*EDGES, *HUGE)]
SUFFIXES = [("suffix", count, "") for count in (*EDGES, *HUGE)]
Case = tuple[str, str, str]


@pytest.fixture(scope="module", params=SPEC_VERSIONS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The reference's store and ours, over one repository."""
    folder = tmp_path_factory.mktemp(f"ranges-{request.param}")
    containers = plans.Containers(str(folder / "files"))
    location = str(folder / "repository")
    _make(location, containers, request.param)
    return tuple(
        open_repository(library, location, [containers.prefix]).readonly_session("main").store
        for library in (REFERENCE, icechunk_stream)
    )


def _make(location: str, containers: plans.Containers, spec_version: int) -> None:
    """An array of five chunks, whose manifest is then replaced by one made by hand."""
    Path(containers.folder).mkdir()
    (Path(containers.folder) / "file").write_bytes(b"#####" + PAYLOAD + b"####")
    changes = (
        plans.PutArray("/a", (50,), (10,), None, {}),
        plans.WriteChunks(array=0, index=0, count=5, length=300, fill=0),
    )
    steps = (plans.Commit(0, changes, "made", {}),)
    plan = plans.Plan(spec_version=spec_version, inline_threshold=512, steps=steps)
    make_repository(REFERENCE, plan, location, containers)
    _replace_manifest(Path(location), containers, spec_version)


def _replace_manifest(location: Path, containers: plans.Containers, spec_version: int) -> None:
    document = open_repository(REFERENCE, location)
    snapshot = document.inspect_snapshot(document.lookup_branch("main"))
    (node,), (manifest,) = snapshot["nodes"], snapshot["manifests"]
    refs = (
        Ref((0,), inline=PAYLOAD),
        Ref((1,), chunk_id=_object(location, 1, PAYLOAD), length=10),
        Ref((2,), chunk_id=_object(location, 2, b"?" * 7 + PAYLOAD + b"???"), offset=7, length=10),
        Ref((3,), location=f"{containers.prefix}file", offset=5, length=10),
    )
    written = manifest_file(manifest["id"], {node["id"]: refs}, spec_version)
    assert len(written) <= manifest["size_bytes"]  # readers fetch no more than that
    (location / "manifests" / manifest["id"]).write_bytes(written)


def _object(location: Path, number: int, content: bytes) -> bytes:
    chunk_id = bytes([number] * 12)
    (location / "chunks").mkdir(exist_ok=True)
    (location / "chunks" / id_text(chunk_id)).write_bytes(content)
    return chunk_id


def _number(edge: str, length: int) -> int:
    named = {"L-1": length - 1, "L": length, "L+1": length + 1, "2**63": 2**63}
    return (named | {"2**64-1": 2**64 - 1}).get(edge, int(edge) if edge.isdigit() else 0)


def _request(case: Case, length: int) -> ByteRequest:
    what, first, second = case
    number = _number(first, length)
    if what == "range":
        return RangeByteRequest(number, _number(second, length))
    return OffsetByteRequest(number) if what == "offset" else SuffixByteRequest(number)


def _wanted(kind: str, whole: bytes | None, request: ByteRequest) -> Any:
    """The rule. Nothing is clamped; the end of a document may be cut empty, a chunk's may not."""
    if whole is None:
        return None
    first, last = _bounds(request, len(whole))
    fits = 0 <= first <= last <= len(whole)
    past = first == len(whole) and kind != "metadata" and not isinstance(request, SuffixByteRequest)
    return whole[first:last] if fits and not past else INVALID


def _bounds(request: ByteRequest, length: int) -> tuple[int, int]:
    match request:
        case RangeByteRequest(start, end):
            return start, end
        case OffsetByteRequest(offset):
            return offset, max(offset, length)
        case SuffixByteRequest(suffix):
            return length - suffix, length
        case _:
            raise TypeError(request)


def _mistake_of_the_reference(kind: str, wanted: Any, request: ByteRequest) -> str | None:
    """Why the reference's own answer is not the expectation."""
    if kind == "metadata" and isinstance(request, SuffixByteRequest):
        return "it gives all but the last n bytes"
    if kind == "metadata" and wanted == INVALID:
        return "it panics"
    if isinstance(request, RangeByteRequest) and request.start > request.end:
        return "it panics, or lets the storage refuse"
    if wanted == b"" and kind not in ("inline", "metadata"):
        return "it asks the storage for an empty range, which the storage refuses"
    if "offset" in kind and request == OffsetByteRequest(2**64 - 1):
        return "offset plus start wraps round, and bytes before the chunk come out"
    return None


def _get(store: Any, key: str, request: ByteRequest | None = None) -> Any:
    return answer(store.get, key, default_buffer_prototype(), request)


@pytest.mark.parametrize("kind", KEYS)
def test_whole_payloads_equal_the_references(kind: str, stores: tuple[Any, Any]) -> None:
    reference, ours = stores
    found = _get(ours, KEYS[kind])
    assert found == _get(reference, KEYS[kind])
    expected = {"never written": None, "metadata": found}.get(kind, PAYLOAD)
    assert found == expected


@pytest.mark.parametrize("case", [*RANGES, *OFFSETS, *SUFFIXES], ids="-".join)
@pytest.mark.parametrize("kind", KEYS)
def test_cuts_what_the_reference_cuts(kind: str, case: Case, stores: tuple[Any, Any]) -> None:
    reference, ours = stores
    whole = _get(reference, KEYS[kind])
    request = _request(case, 10 if whole is None else len(whole))
    wanted = _wanted(kind, whole, request)
    assert _get(ours, KEYS[kind], request) == wanted
    if _mistake_of_the_reference(kind, wanted, request) is None:
        assert _get(reference, KEYS[kind], request) == wanted


@pytest.mark.parametrize("kind", [kind for kind in KEYS if kind != "never written"])
@pytest.mark.parametrize(
    "request_",
    [
        OffsetByteRequest(-1),
        SuffixByteRequest(-1),
        RangeByteRequest(-3, -1),
        RangeByteRequest(0, 2**64),
        OffsetByteRequest(2**64),
    ],
    ids=str,
)
def test_refuses_numbers_that_the_reference_cannot_take(
    kind: str, request_: ByteRequest, stores: tuple[Any, Any]
) -> None:
    assert _get(stores[1], KEYS[kind], request_) == INVALID


def test_partial_values_come_in_order_with_none_for_missing_keys(stores: tuple[Any, Any]) -> None:
    asked = [(key, SuffixByteRequest(2)) for kind, key in KEYS.items() if kind != "metadata"]
    found = answer(
        stores[1].get_partial_values, default_buffer_prototype(), [*asked, (DOCUMENT, None)]
    )
    document = _get(stores[0], DOCUMENT)
    assert found == [b"89", b"89", b"89", b"89", None, document]


def test_arrays_read_through_every_kind(stores: tuple[Any, Any]) -> None:
    arrays = [zarr.open_array(store, path="a", mode="r") for store in stores]
    expected, found = [np.asarray(array[...]).tolist() for array in arrays]
    assert found == expected == [*PAYLOAD * 4, *[7] * 10]
