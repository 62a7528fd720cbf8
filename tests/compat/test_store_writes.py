"""The same calls on the reference's store and on ours: the same answers, and the same state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from tests.oracle.compare import assert_same
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.oracle.outcomes import answer, outcome, refused
from tests.zarr.documents import GROUP, array

pytestmark = pytest.mark.compat

EXAMPLES = settings.get_profile(settings.get_current_profile_name()).max_examples
PROTOTYPE = default_buffer_prototype()
# The rank of a path's array never changes: this, the reference takes and we refuse.
RANKS = {"": 1, "a": 1, "g": 0, "g/a": 2, "g/b/a": 1}
PREFIX = "s3://bucket/folder/"
LOCATIONS = [f"{PREFIX}x", f"{PREFIX}y//z", "S3://bucket/folder/x", "vcc://named/x", "s3://other/x"]
LOCATIONS += ["vcc://unknown/x", "no url", "s3:///x", "file:///tmp/a/../b c", "file:///tmp//b"]

NODE_CHANGES = [
    f"{what}_{nodes}" for what in ("new", "updated", "deleted") for nodes in ("groups", "arrays")
]


@dataclass(frozen=True)
class Call:
    """A method of a store, and what it is called with."""

    name: str
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()

    def on(self, library: Any, store: Any) -> Any:
        arguments = [_for(library, argument) for argument in self.arguments]
        found = answer(lambda: getattr(store, self.name)(*arguments, **dict(self.named)))
        return None if found == () else found


@dataclass(frozen=True)
class Spec:
    """A virtual chunk, of which each library has a class of its own."""

    index: tuple[int, ...]
    location: str
    offset: int
    length: int


def _for(library: Any, argument: Any) -> Any:
    match argument:
        case Spec(index, location, offset, length):
            return library.VirtualChunkSpec(list(index), location, offset, length)
        case list(items):
            return [_for(library, item) for item in items]
        case bytes():
            return PROTOTYPE.buffer.from_bytes(argument)
        case _:
            return argument


def key_of(path: str, name: str) -> str:
    return f"{path}/{name}".lstrip("/")


paths = st.sampled_from(sorted(RANKS))


@st.composite
def indices(draw: st.DrawFn, path: str) -> tuple[int, ...]:
    return tuple(draw(st.integers(0, 3)) for _ in range(RANKS[path]))


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, bytes]:
    path = draw(paths)
    shape = [draw(st.integers(1, 4)) for _ in range(RANKS[path])]
    arrays = [array(shape), array(shape, [2] * len(shape))]
    return key_of(path, "zarr.json"), draw(st.sampled_from([*arrays, *arrays, GROUP, b"{}"]))


@st.composite
def chunk_keys(draw: st.DrawFn) -> str:
    path = draw(paths)
    return key_of(path, "/".join(["c", *map(str, draw(indices(path)))]))


@st.composite
def chunks(draw: st.DrawFn) -> tuple[str, bytes]:
    return draw(chunk_keys()), b"x" * draw(st.sampled_from([0, 1, 512, 513, 2000]))


@st.composite
def virtual_ref(draw: st.DrawFn) -> Call:
    numbers = {"offset": draw(st.integers(0, 9)), "length": draw(st.integers(0, 3))}
    named = numbers | {"validate_container": draw(st.booleans())}
    location = draw(st.sampled_from(LOCATIONS).filter(lambda text: not text.startswith("vcc://u")))
    return Call("set_virtual_ref", (draw(chunk_keys()), location), tuple(named.items()))


@st.composite
def virtual_refs(draw: st.DrawFn) -> Call:
    """Whole calls only: where one is refused, the reference has kept what came before."""
    path = draw(paths)
    taken = st.sampled_from(LOCATIONS[:6])
    specs = st.builds(Spec, indices(path), taken, st.integers(0, 9), st.just(3))
    return Call("set_virtual_refs", ("/" + path, draw(st.lists(specs, max_size=1))))


@st.composite
def virtual_refs_arr(draw: st.DrawFn) -> Call:
    path = draw(paths)
    shape = (1,) * RANKS[path]
    locations = [draw(st.sampled_from(["", *LOCATIONS[:6]]))]
    columns = np.array([7], np.uint64), np.array([3], np.uint64)
    named = (("arr_offset", draw(indices(path))),)
    return Call("set_virtual_refs_arr", ("/" + path, shape, locations, *columns), named)


odd_keys = st.sampled_from(
    ["foo", "a/.zarray", ".zgroup", "a/c/x", "a/zarr.json/c/0", "g/../a/c/0"]
)
keys = chunk_keys() | documents().map(lambda pair: pair[0]) | odd_keys
folders = paths | st.sampled_from(["a/c", "g/a/c", "g/a/c/1", "g/b", "no", "a/c/0", "../a", "a/"])
calls = st.one_of(
    st.builds(Call, st.just("set"), documents()),
    st.builds(Call, st.just("set"), documents()),
    st.builds(Call, st.sampled_from(["set", "set_if_not_exists"]), chunks()),
    st.builds(Call, st.just("set_if_not_exists"), documents()),
    st.builds(Call, st.just("set"), st.tuples(odd_keys, st.just(b"x"))),
    st.builds(Call, st.sampled_from(["delete", "exists", "getsize"]), st.tuples(keys)),
    st.builds(Call, st.sampled_from(["delete_dir", "list_dir", "is_empty"]), st.tuples(folders)),
    st.builds(Call, st.sampled_from(["list_prefix", "getsize_prefix"]), st.tuples(folders)),
    st.builds(Call, st.sampled_from(["clear", "commit"]), st.just(())),
    virtual_ref(),
    virtual_refs(),
    virtual_refs_arr(),
)


class Side:
    """A library, a repository of its own, and the store that is written to."""

    def __init__(self, library: Any, spec_version: int) -> None:
        self.library = library
        config = library.RepositoryConfig.default()
        for prefix, name in ((PREFIX, "named"), ("file:///tmp/", None)):
            config.set_virtual_chunk_container(_container(library, prefix, name))
        self.repository = library.Repository.create(
            library.in_memory_storage(), config=config, spec_version=spec_version
        )
        self.store = self.repository.writable_session("main").store

    def run(self, call: Call) -> Any:
        if call.name != "commit":
            return call.on(self.library, self.store)
        # What was made and cleared in one session is a change for the reference, if an empty one.
        done = outcome(partial(self.store.session.commit, "changes", allow_empty=True))
        self.store = self.repository.writable_session("main").store
        return "committed" if isinstance(done, str) else done

    def state(self) -> dict[str, Any]:
        """Every key with its value, and what has changed since the last commit."""
        found = answer(self.store.list)
        read = {key: answer(self.store.get, key, PROTOTYPE) for key in found}
        # An array that shrank: the reference still lists chunks that it no longer gives.
        values = {key: value for key, value in read.items() if value is not None}
        sizes = {key: answer(self.store.getsize, key) for key in values}
        return {"values": values, "sizes": sizes, "status": self.status()}

    def status(self) -> dict[str, Any]:
        """What a commit would record."""
        status = self.store.session.status()
        nodes = {name: sorted(getattr(status, name)) for name in NODE_CHANGES}
        chunks = status.updated_chunks.items()
        return nodes | {"chunks": {path: sorted(map(list, changed)) for path, changed in chunks}}


def _container(library: Any, prefix: str, name: str | None) -> Any:
    store = (
        library.s3_store(region="us-east-1")
        if prefix.startswith("s3")
        else library.local_filesystem_store("/tmp")
    )
    return library.VirtualChunkContainer(prefix, store, **({"name": name} if name else {}))


@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
@settings(max_examples=EXAMPLES // 2)
@given(sequence=st.lists(calls, min_size=1, max_size=25))
def test_the_same_calls_give_the_same_answers_and_the_same_state(
    spec_version: int, sequence: list[Call]
) -> None:
    reference, ours = Side(REFERENCE, spec_version), Side(icechunk_stream, spec_version)
    names = ("the reference", "we")
    for call in sequence:
        assert_same([call, reference.run(call)], [call, ours.run(call)], names)
        assert_same(reference.state(), ours.state(), names)


# Spelled by the reference as we spell them, or refused by both for one reason.
SPELLINGS = [
    *["FILE:///tmp/x", "file:///tmp/../tmp/y", "file:///tmp/a b", "file:///tmp/a%20b"],
    *["file:///tmp/./z", "file:///tmp//z", "file://localhost/tmp/x", "file:/tmp/x", "file:x"],
    *["file://host/tmp/x", "file://HOST/x", "file://", "file:///", "/tmp/x", "x", ""],
    *["file:///tmp/\u00e9", "file:///tmp/a?b#c", "file:///tmp/%zz", "file:///tmp/a\\b"],
    *["file:///tmp/{x}", "file:///tmp/a/%2e%2e/b", "file:///tmp/c%2e%2e/d", "file:///tmp/.."],
    *["file:///tmp/b/.", "file:///tmp/b/..", "file:///tmp/'\"<>`^|~", "file:///tmp/a\tb\nc"],
    *['file:///tmp/a?q x"#f x', "file:\\\\x", "file:///tmp/.hidden", "file:///tmp/a..b"],
    *["S3://bucket/folder/x", "s3://bucket/folder//x/../y", "s3://bucket/folder/a b?c#d"],
    *["s3://BUCKET/folder/x", "s3://bucket/folder", "s3://bucket/folder/", "s3://bucket"],
    *["s3:///folder/x", "s3:bucket/folder", "s3:/bucket/x", "s3://", "s3://bucket/f%6flder/x"],
    *["s3://bucket/folder/%zz", "s3://bucket/folder/\u00e9", "s3://bucket/folder/x\n"],
    *["s3://user:word@bucket/folder/x", "s3://bucket:80/folder/x", "s3://bucket\\folder/x"],
    *["VCC://named/x", "vcc://named/", "vcc://named/../../x", "vcc:named/x", "vcc://unknown/x"],
    *["gs://b/x", "az://c/x", "HTTP://h/x", "http://h", "https:///x", "ftp://h/x", "mailto:a@b"],
]
# Texts that the reference stores although no reader can follow them, or refuses for another reason.
STRICTER = [" s3://bucket/folder/x", "1s3://bucket/x", "vcc://named", "vcc:///x"]


@pytest.fixture(scope="module")
def sides() -> tuple[Side, Side]:
    made = Side(REFERENCE, SPEC_VERSIONS[-1]), Side(icechunk_stream, SPEC_VERSIONS[-1])
    for side in made:
        Call("set", ("a/zarr.json", array([1]))).on(side.library, side.store)
    return made


def spelled(side: Side, location: str, *, validate: bool) -> Any:
    """What is stored for a location, if it is stored at all."""
    named = {"offset": 0, "length": 1, "validate_container": validate}
    done = outcome(lambda: side.store.set_virtual_ref("a/c/0", location, **named))
    found = outcome(side.store.session.all_virtual_chunk_locations)
    Call("delete", ("a/c/0",)).on(side.library, side.store)
    return found if done is None else done


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("location", SPELLINGS)
def test_locations_are_spelled_as_the_reference_spells_them(
    sides: tuple[Side, Side], location: str, validate: bool
) -> None:
    reference, ours = (spelled(side, location, validate=validate) for side in sides)

    assert ours == reference


@pytest.mark.parametrize("location", STRICTER)
def test_locations_that_nobody_could_read_are_refused(
    sides: tuple[Side, Side], location: str
) -> None:
    assert spelled(sides[1], location, validate=False) == refused("invalid-virtual-ref")


@settings(max_examples=EXAMPLES // 4)
@given(data=st.data(), shape=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_boxes_of_references_are_laid_out_as_the_reference_lays_them_out(
    data: st.DataObject, shape: list[int]
) -> None:
    begin = tuple(data.draw(st.integers(0, 2)) for _ in shape)
    count = int(np.prod(shape))
    names = st.lists(st.sampled_from(["", f"{PREFIX}x", f"{PREFIX}y"]), min_size=count)
    locations = data.draw(names)[:count]
    columns = np.arange(count, dtype="u8"), np.arange(count, dtype="u8") + 1
    found = []
    for library in (REFERENCE, icechunk_stream):
        side = Side(library, SPEC_VERSIONS[-1])
        Call("set", ("a/zarr.json", array([5] * len(shape)))).on(library, side.store)
        side.store.set_virtual_refs_arr("a", shape, locations, *columns, arr_offset=begin)
        sizes = {key: size for key, size in side.state()["sizes"].items() if "/c/" in key}
        found.append((sizes, sorted(side.store.session.all_virtual_chunk_locations())))
    assert found[0] == found[1]
