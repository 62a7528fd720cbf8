"""Manifests rewritten by either library: the same layout, and repositories that both go on with."""

from __future__ import annotations

import shutil
import warnings
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import icechunk_stream
from icechunk_stream import AlreadyCompact, Compacted, OnePerCell, Repository, Tiered
from icechunk_stream.format.ids import SnapshotId
from tests.compat.test_fixtures import V1, V2
from tests.manifests.checks import arrays, check_manifests, tip
from tests.manifests.compacting import append, create_arrays, values
from tests.oracle.dump import open_repository
from tests.oracle.libraries import KNOWS_V2, REFERENCE, SPEC_VERSIONS
from tests.oracle.session_dump import dump_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(not KNOWS_V2, reason="release 1.x has no amend option"),
]

SMALL = Tiered(cell_refs=24, ratio=4, most=6, shared_refs=12)
RULES = (None, {0: 4}, {0: 3, 1: 2}, {1: 5})


@pytest.fixture(params=SPEC_VERSIONS, ids="v{}".format)
def spec_version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def config_of(library: Any, rule: dict[int, int] | None) -> Any:
    if rule is None:
        return None
    axis = library.ManifestSplitDimCondition.Axis
    sizes = {axis(number): size for number, size in rule.items()}
    splitting = library.ManifestSplittingConfig.from_dict(
        {library.ManifestSplitCondition.AnyArray(): sizes}
    )
    return library.RepositoryConfig(manifest=library.ManifestConfig(splitting=splitting))


def theirs(folder: Path, rule: dict[int, int] | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = REFERENCE.local_filesystem_storage(str(folder))
        return REFERENCE.Repository.open(storage, config=config_of(REFERENCE, rule))


def ours(folder: Path, rule: dict[int, int] | None = None) -> Repository:
    storage = icechunk_stream.local_filesystem_storage(str(folder), durability="os")
    return Repository.open(storage, config=config_of(icechunk_stream, rule))


def make(folder: Path, spec_version: int) -> None:
    """Two sparse arrays and a small one, in many commits."""
    storage = icechunk_stream.local_filesystem_storage(str(folder), durability="os")
    created = Repository.create(storage, spec_version=spec_version)
    repository = created.with_manifest_policy(SMALL)
    session = repository.writable_session("main")
    for name in ("plane", "g/deep"):
        zarr.create_array(session.store, name=name, shape=(11, 9), chunks=(1, 1), dtype="int32")
    zarr.create_array(session.store, name="line", shape=(5,), chunks=(2,), dtype="int8")[:] = 3
    session.commit("arrays")
    generator = np.random.default_rng(7)
    for number in range(1, 12):
        session = repository.writable_session("main")
        for name in ("plane", "g/deep"):
            array = zarr.open_array(session.store, path=name)
            for row, column in generator.integers(0, (11, 9), (5, 2)).tolist():
                array[row, column] = number * 100 + row
        session.commit("some")


def seen(repository: Any) -> dict[str, Any]:
    store = repository.readonly_session("main").store
    return {
        name: np.asarray(zarr.open_array(store, path=name, mode="r")[...]).tolist()
        for name in ("plane", "g/deep", "line")
    }


def boxes(repository: Repository) -> dict[str, list[Any]]:
    return {node.path: sorted(node.manifests.extents.tolist()) for node in arrays(tip(repository))}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_one_manifest_a_cell_is_what_the_reference_makes(
    tmp_path: Path, spec_version: int, rule: dict[int, int] | None
) -> None:
    make(tmp_path / "ours", spec_version)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    expected = seen(theirs(tmp_path / "ours"))

    reference = theirs(tmp_path / "theirs", rule)
    their_id = reference.rewrite_manifests("new", branch="main", metadata={"job": 1})
    repository = ours(tmp_path / "ours", rule).with_manifest_policy(OnePerCell())
    our_id = repository.rewrite_manifests("new", branch="main", metadata={"job": 1})

    other = ours(tmp_path / "theirs")
    assert boxes(repository) == boxes(other)
    assert tip(repository).metadata == tip(other).metadata
    assert tip(repository).message == tip(other).message
    for each, id in ((repository, our_id), (other, their_id)):
        log = each._assets.transaction_log(SnapshotId.parse(id))
        assert (len(log.updated_arrays), dict(log.updated_chunks)) == (0, {})
    assert seen(theirs(tmp_path / "ours")) == seen(repository) == expected
    assert seen(reference) == seen(other) == expected


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_reference_goes_on_from_full_and_shared_manifests(
    tmp_path: Path, spec_version: int, rule: dict[int, int] | None
) -> None:
    make(tmp_path / "a", spec_version)
    repository = ours(tmp_path / "a", rule).with_manifest_policy(SMALL)
    expected = seen(repository)

    assert isinstance(repository.compact(branch="main"), Compacted)

    chunks = check_manifests(repository)
    assert seen(theirs(tmp_path / "a")) == expected
    session = theirs(tmp_path / "a", rule).writable_session("main")
    zarr.open_array(session.store, path="line")[0] = 9
    zarr.open_array(session.store, path="plane")[10, 8] = 5
    session.commit("theirs")
    expected["line"][0] = 9
    expected["plane"][10][8] = 5
    repository.compact(branch="main")
    theirs(tmp_path / "a", rule).rewrite_manifests("theirs", branch="main")
    repository.compact(branch="main")
    assert seen(repository) == seen(theirs(tmp_path / "a")) == expected
    assert check_manifests(repository)["/line"] == chunks["/line"]


def test_expiration_and_garbage_collection_of_the_reference_keep_every_value(
    tmp_path: Path, spec_version: int
) -> None:
    make(tmp_path / "a", spec_version)
    repository = ours(tmp_path / "a").with_manifest_policy(SMALL)
    expected = seen(repository)
    before = set(_manifests(tmp_path / "a"))
    repository.compact(branch="main")

    reference = theirs(tmp_path / "a")
    later = datetime.now(UTC) + timedelta(seconds=1)
    reference.expire_snapshots(later)
    reference.garbage_collect(datetime.now(UTC) + timedelta(days=1))

    left = set(_manifests(tmp_path / "a"))
    assert left == {str(file.id) for file in tip(ours(tmp_path / "a")).manifest_files}
    assert len(left) < len(before)
    assert seen(theirs(tmp_path / "a")) == seen(ours(tmp_path / "a")) == expected


def test_amended_by_either_library_the_history_is_the_same(tmp_path: Path) -> None:
    make(tmp_path / "ours", 2)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")

    theirs(tmp_path / "theirs").rewrite_manifests("new", branch="main", commit_method="amend")
    ours(tmp_path / "ours").rewrite_manifests("new", branch="main", commit_method="amend")

    found, expected = (
        [each.message for each in theirs(tmp_path / name).ancestry(branch="main")]
        for name in ("ours", "theirs")
    )
    assert found == expected
    kinds = [
        type(next(iter(theirs(tmp_path / name).ops_log())).kind) for name in ("ours", "theirs")
    ]
    assert kinds[0] is kinds[1]
    assert seen(theirs(tmp_path / "ours")) == seen(ours(tmp_path / "theirs"))


def test_a_repository_of_the_reference_is_cut_and_its_small_arrays_share(
    tmp_path: Path, spec_version: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = REFERENCE.local_filesystem_storage(str(tmp_path))
        reference = REFERENCE.Repository.create(storage, spec_version=spec_version)
    create_arrays(reference, ["big", "x", "y"])
    append(reference, ["x", "y"], 5)
    append(reference, ["big"], 100)
    expected = values(reference)

    outcome = ours(tmp_path).with_manifest_policy(SMALL).compact(branch="main")

    assert isinstance(outcome, Compacted)
    assert outcome.before.manifests == 3
    assert outcome.after.manifests == 4 + 1
    assert values(theirs(tmp_path)) == values(ours(tmp_path)) == expected


def _manifests(folder: Path) -> list[str]:
    return [path.name for path in (folder / "manifests").iterdir()]


def said(library: Any, folder: Path) -> dict[str, Any]:
    """All that the tip's session says, but for the snapshot's name."""
    session = open_repository(library, folder).readonly_session("main")
    return dump_session(session) | {"snapshot_id": None}


@pytest.mark.filterwarnings("ignore:the configuration says unsafe")
@pytest.mark.parametrize(
    ("name", "is_upgraded"), [*product([*V1, *V2], [False]), *product(V1, [True])]
)
@pytest.mark.parametrize("policy", [Tiered(cell_refs=6, shared_refs=4), OnePerCell()], ids=repr)
def test_what_old_releases_wrote_says_the_same_afterwards(
    name: str, is_upgraded: bool, policy: Any, fixture_copy: Callable[[str], Path]
) -> None:
    folder = fixture_copy(name)
    if is_upgraded:
        REFERENCE.upgrade_icechunk_repository(theirs(folder), dry_run=False)
    expected = said(REFERENCE, folder)
    repository = ours(folder).with_manifest_policy(policy)

    repository.compact(branch="main")

    assert said(REFERENCE, folder) == expected
    check_manifests(repository)
    assert isinstance(repository.compact(branch="main"), AlreadyCompact)
