"""Rules for exact paths: the reference, our regular expressions and our short cut agree on them."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import icechunk
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import icechunk_stream as ic
from icechunk_stream.config import SplitAnyArray, SplitAnyDimension, SplitAxis, SplitNameMatches
from icechunk_stream.config import SplitPathMatches as PathMatches
from icechunk_stream.config.manifests import SplitSizes
from icechunk_stream.format.config_rules import with_split_rules
from icechunk_stream.format.ids import SnapshotId
from icechunk_stream.format.nodes import ArrayNode
from icechunk_stream.manifests.exact_paths import exact_paths, exact_regex
from icechunk_stream.manifests.managed_rules import followed, rules_for, unspoken
from icechunk_stream.stored_config import edit_config_file, edit_config_in_repo
from tests.compat.test_splitting import document

SPECIAL = r".^$*+?{}[]|()\-&~#,:<>=!'% "
CHARACTERS = st.sampled_from(SPECIAL + "aAbndswzZ019_\t\n\u00e9\u00df\u0130\u4e16\U0001f30d\u0301")
NAMES = st.text(CHARACTERS, min_size=1, max_size=8).filter(
    lambda name: (
        not name.startswith("__") and bool(name.strip(".")) and name not in ("c", "zarr.json")
    )
)
CUT = ((SplitAxis(0), 2),)


def neighbours(name: str) -> set[str]:
    """Names that a careless expression would find too."""
    found = {name + "x", "x" + name, name.swapcase(), name + "\n", f"{name}|{name}", name[:-1]}
    found |= {f"{name}/{name}", f"x/{name}", f"{name}.*", f"\\{name}", name.replace(".", "x")}
    return {each for each in found if each.strip(".\n/") and not each.startswith("__")}


@given(
    st.sampled_from(["", "/g", "/g.h/(i)"]), st.lists(NAMES, min_size=1, max_size=4, unique=True)
)
def test_an_exact_expression_finds_its_paths_and_no_others(folder: str, names: list[str]) -> None:
    regex = exact_regex(folder, names)
    paths = frozenset(f"{folder}/{name}" for name in names)
    others = {f"{folder}/{each}" for name in names for each in neighbours(name)}
    others |= {f"/x{folder}/{name}" for name in names}
    assert exact_paths(regex) == paths
    for path in paths | others:
        assert pc.match_substring_regex(path, regex).as_py() == (path in paths)


@pytest.mark.parametrize(
    "regex", ["", "a", "^a", "a$", "^a.b$", "^a|b$", "^(?:a|(?:b))$", "^(?i)a$", r"^\d$", "^(a|b)$"]
)
def test_other_expressions_are_left_to_the_engine(regex: str) -> None:
    assert exact_paths(regex) is None


def put(session: Any, path: str, number: int) -> None:
    value = default_buffer_prototype().buffer.from_bytes(document([4]))
    sync(session.store.set(f"{path.strip('/')}/zarr.json", value))
    for index in range(4):
        chunk = default_buffer_prototype().buffer.from_bytes(b"%d" % number)
        sync(session.store.set(f"{path.strip('/')}/c/{index}", chunk))


def manifests(folder: Path) -> dict[str, int]:
    """Into how many manifests each array is split."""
    repository = ic.Repository.open(ic.local_filesystem_storage(str(folder)))
    nodes = repository._assets.snapshot(SnapshotId.parse(repository.lookup_branch("main"))).nodes
    return {node.path: len(node.manifests) for node in nodes if isinstance(node, ArrayNode)}


def store_rules(repository: ic.Repository, rules: SplitSizes) -> None:
    if repository.spec_version == 1:
        edit_config_file(repository.storage, lambda there: with_split_rules(there.root, rules))
    else:
        edit_config_in_repo(
            repository._assets,
            repository._update_rules,
            lambda there: with_split_rules(there.root, rules),
        )


@pytest.mark.compat
@pytest.mark.parametrize("spec", [1, 2])
def test_the_reference_splits_exactly_the_arrays_of_a_rule(
    spec: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    numbers = count()

    @settings(max_examples=40, deadline=None)
    @given(
        st.sampled_from(["", "/g", "/g.h/(i)"]),
        st.lists(NAMES, min_size=1, max_size=3, unique=True),
    )
    def check(group: str, names: list[str]) -> None:
        folder = tmp_path_factory.mktemp("rules") / str(next(numbers))
        repository = ic.Repository.create(
            ic.local_filesystem_storage(str(folder), durability="os"), spec_version=spec
        )
        paths = {f"{group}/{name}" for name in names}
        store_rules(repository, rules_for(dict.fromkeys(paths, CUT)))
        near = {each for name in names for each in neighbours(name) if "/" not in each}
        others = {f"{group}/{each}" for each in near} | {f"/x{path}" for path in paths}
        reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder)))
        session = reference.writable_session("main")
        for number, path in enumerate(sorted(paths | others)):
            put(session, path, number)
        session.commit("arrays")
        assert manifests(folder) == {path: 2 if path in paths else 1 for path in paths | others}

    check()


def test_arrays_of_a_group_that_are_cut_alike_share_a_rule() -> None:
    other = ((SplitAxis(1), 3),)
    cells = {"/g/b": CUT, "/g/a": CUT, "/g/c.d": other, "/a": CUT}
    assert rules_for(cells) == (
        (PathMatches("^/a$"), CUT),
        (PathMatches("^/g/(?:a|b)$"), CUT),
        (PathMatches(r"^/g/c\.d$"), other),
    )


def test_many_arrays_do_not_make_an_expression_that_engines_refuse() -> None:
    cells = dict.fromkeys((f"/group/some_variable_of_number_{n}" for n in range(2_500)), CUT)
    rules = rules_for(cells)
    assert len(rules) == 3
    assert unspoken(rules, cells) == {}
    for condition, _ in rules:
        assert isinstance(condition, PathMatches)
        assert pc.match_substring_regex("/group/some", condition.regex).as_py() is False


@pytest.mark.parametrize("condition", [PathMatches(".*"), SplitAnyArray()])
def test_the_default_rule_speaks_of_nothing(condition: Any) -> None:
    cells = {"/g/a": CUT}
    assert unspoken(((condition, ((SplitAnyDimension(), 2**32 - 1),)),), cells) == cells
    assert unspoken(((condition, ((SplitAnyDimension(), 1_000),)),), cells) == {}


def test_a_rule_that_speaks_of_an_array_leaves_the_others() -> None:
    rules = ((SplitNameMatches("temp"), ((SplitAxis(0), 5),)),)
    assert unspoken(rules, {"/g/temp_max": CUT, "/temp/a": CUT}) == {"/temp/a": CUT}


def test_stored_rules_are_followed_for_the_asked_arrays_only() -> None:
    any_array = (SplitAnyArray(), CUT)
    stored = (*rules_for({"/g/a": CUT, "/g/b": CUT}), any_array)
    given_rules = ((PathMatches("^/g/b$"), ((SplitAxis(0), 5),)),)
    assert followed(given_rules, stored, ["/g/a"]) == ((PathMatches("^/g/a$"), CUT), *given_rules)
    assert followed(given_rules, stored, ["/g/c"]) == given_rules
