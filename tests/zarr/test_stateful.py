"""zarr's state machines for stores, with what only a store of zarr v3 hierarchies asks for."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
import zarr
from hypothesis import assume, note, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)
from zarr.testing.stateful import ZarrHierarchyStateMachine, ZarrStoreStateMachine
from zarr.testing.strategies import node_names, np_array_and_chunks

import icechunk_stream as ic
from tests.zarr.keyed import KeyedStore

EXAMPLES = settings.get_profile(settings.get_current_profile_name()).max_examples
SPEC_VERSIONS = pytest.mark.parametrize("spec_version", [1, 2])
# zarr warns of data types that it may yet change.
UNSTABLE = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def new_repository(spec_version: int) -> ic.Repository:
    return ic.Repository.create(ic.in_memory_storage(), spec_version=spec_version)


class HierarchyMachine(ZarrHierarchyStateMachine):
    """Groups and arrays; now and then what there is gets committed."""

    spec_version: int
    store: ic.IcechunkStore

    def __init__(self) -> None:
        self.repository = new_repository(self.spec_version)
        super().__init__(self.repository.writable_session("main").store)

    @rule(
        data=st.data(),
        name=node_names,
        drawn=np_array_and_chunks(),
    )
    def add_array(self, data: st.DataObject, name: str, drawn: Any) -> None:
        """Regular grids and no codec of Python's: both specs have these."""
        parents = sorted(self.all_groups) or [""]
        path = f"{data.draw(st.sampled_from(parents))}/{name}".lstrip("/")
        assume(self.can_add(path))
        values, chunks = drawn
        note(f"array {path!r} of {values.dtype} {values.shape} in chunks {chunks}")
        for store in (self.model, self.store):
            made = zarr.create_array(
                store, name=path, shape=values.shape, dtype=values.dtype, chunks=chunks
            )
            made[...] = values
        self.all_arrays.add(path)

    @precondition(lambda self: bool(self.all_groups))
    @rule(data=st.data())
    def check_list_dir(self, data: st.DataObject) -> None:
        """Repositories list the folder of chunks of every array, also where it has none."""
        path = self.draw_directory(data)
        expected = set(self._sync_iter(self.model.list_dir(path)))
        if path in self.all_arrays:
            expected.add("c")
        assert sorted(self._sync_iter(self.store.list_dir(path))) == sorted(expected)

    @precondition(lambda self: self.store.session.has_uncommitted_changes)
    @rule()
    def commit(self) -> None:
        self.store.session.commit("as the model says")
        self.store = self.repository.writable_session("main").store


class StoreMachine(ZarrStoreStateMachine):
    """Any key with any value, by way of one array for each key."""

    spec_version: int

    def __init__(self) -> None:
        self.repository = new_repository(self.spec_version)
        self.session = self.repository.writable_session("main")
        super().__init__(KeyedStore(self.session.store))

    @precondition(lambda self: self.session.has_uncommitted_changes)
    @rule()
    def commit(self) -> None:
        self.session.commit("as the model says")
        self.session = self.repository.writable_session("main")
        self.store.store = KeyedStore(self.session.store)


def run(machine: type[RuleBasedStateMachine], spec_version: int) -> None:
    versioned = type(machine.__name__, (machine,), {"spec_version": spec_version})
    run_state_machine_as_test(
        versioned, settings=settings(max_examples=EXAMPLES // 7, stateful_step_count=30)
    )


@UNSTABLE
@SPEC_VERSIONS
def test_hierarchies_are_those_of_the_model(spec_version: int) -> None:
    run(HierarchyMachine, spec_version)


@SPEC_VERSIONS
def test_keys_and_values_are_those_of_the_model(spec_version: int) -> None:
    run(StoreMachine, spec_version)
