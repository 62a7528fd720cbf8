"""The same calls on the reference's store and on ours: the same answers, and the same state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype

import icechunk_stream
from tests.oracle.compare import assert_same
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.oracle.outcomes import answer, outcome
from tests.zarr.documents import GROUP, array

pytestmark = pytest.mark.compat

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
        done = outcome(self.store.session.commit, "changes")
        self.store = self.repository.writable_session("main").store
        return "committed" if isinstance(done, str) else done

    def state(self) -> dict[str, Any]:
        """Every key with its value, and what has changed since the last commit."""
        found = answer(self.store.list)
        values = {key: answer(self.store.get, key, PROTOTYPE) for key in found}
        sizes = {key: answer(self.store.getsize, key) for key in found}
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
@settings(max_examples=100)
@given(sequence=st.lists(calls, min_size=1, max_size=25))
def test_the_same_calls_give_the_same_answers_and_the_same_state(
    spec_version: int, sequence: list[Call]
) -> None:
    reference, ours = Side(REFERENCE, spec_version), Side(icechunk_stream, spec_version)
    names = ("the reference", "we")
    for call in sequence:
        assert_same([call, reference.run(call)], [call, ours.run(call)], names)
        assert_same(reference.state(), ours.state(), names)
