"""Ids and names in every spelling, through every call that takes one, as in the reference."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import icechunk_stream
from tests.oracle import plans
from tests.oracle.dump import open_repository
from tests.oracle.libraries import REFERENCE, SPEC_VERSIONS
from tests.oracle.maker import make_repository
from tests.oracle.outcomes import is_failure, outcome, refused

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.compat

Pair = tuple[Any, Any]

# Names that are escaped in folder names: 2.3.0 lists them escaped, which is a mistake of its.
ESCAPED = (
    "x%y",
    "é ü",
    "日本",
    "%2F",
    "q?",
    "#",
    "~",
    "a\\b",
    "a*b",
    "a|b",
    '"',
    "{x}",
    "[y]",
    "`",
    "^",
)
PLAIN = ("t", "v1.0", "a b", "..", ".", "A", "(1)", "a:b", "", "+", "n" * 200)


@pytest.fixture(scope="module", params=SPEC_VERSIONS, ids="v{}".format)
def repositories(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The reference's view of one repository, and ours."""
    folder = tmp_path_factory.mktemp("ids")
    return _made(str(folder), request.param, (plans.CreateRef("tag", "gone", 0, 0),))


def _made(folder: str, spec_version: int, more: tuple[plans.Step, ...]) -> Pair:
    changes = (plans.PutGroup("/", {}), plans.PutArray("/a", (3,), (1,), None, {}))
    payloads = (plans.WriteChunks(0, 0, 3, None, 0),)
    steps = (
        plans.Commit(0, changes, "first", {}),
        plans.Commit(0, payloads, "second", {}),
        *more,
        plans.DeleteRef("tag", 0),
    )
    plan = plans.Plan(spec_version=spec_version, inline_threshold=512, steps=steps)
    location = f"{folder}/repository"
    make_repository(REFERENCE, plan, location, plans.Containers(folder))
    reference, ours = (open_repository(ic, location) for ic in (REFERENCE, icechunk_stream))
    return reference, ours


SPELLINGS: dict[str, Callable[[str], str]] = {
    "canonical": lambda text: text,
    "lower case": str.lower,
    "o for 0": lambda text: text.replace("0", "o"),
    "O for 0": lambda text: text.replace("0", "O"),
    "i for 1": lambda text: text.replace("1", "i"),
    "I for 1": lambda text: text.replace("1", "I"),
    "l for 1": lambda text: text.replace("1", "l"),
    "L for 1": lambda text: text.replace("1", "L"),
    "lowest spare bit set": lambda text: text[:-1] + {"0": "1", "G": "H"}[text[-1]],
    "all spare bits set": lambda text: text[:-1] + {"0": "F", "G": "Z"}[text[-1]],
    "another id": lambda text: text[:-1] + {"0": "G", "G": "0"}[text[-1]],
    "all zero": lambda text: "0" * 20,
    "empty": lambda text: "",
    "one short": lambda text: text[:-1],
    "one long": lambda text: text + "0",
    "hyphen": lambda text: f"{text[:5]}-{text[5:]}",
    "hyphen within 20": lambda text: f"{text[:5]}-{text[6:]}",
    "space before": lambda text: f" {text}",
    "space after": lambda text: f"{text} ",
    "U": lambda text: "U" + text[1:],
    "not ASCII": lambda text: "é" + text[1:],
    "fullwidth digit": lambda text: "\uff11" + text[1:],
    "NUL": lambda text: "\0" + text[1:],
}
SNAPSHOT_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "lookup_snapshot": lambda repository, text: repository.lookup_snapshot(text).id,
    "readonly_session": lambda repository, text: (
        repository.readonly_session(snapshot_id=text).snapshot_id
    ),
    "ancestry": lambda repository, text: [
        info.id for info in repository.ancestry(snapshot_id=text)
    ],
    "list_manifest_files": lambda repository, text: sorted(
        file.id for file in repository.list_manifest_files(text)
    ),
    "inspect_snapshot": lambda repository, text: repository.inspect_snapshot(text)["id"],
    "inspect_transaction_log": lambda repository, text: repository.inspect_transaction_log(text)[
        "updated_chunks"
    ],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("call", SNAPSHOT_CALLS)
def test_snapshot_ids_are_taken_as_the_reference_takes_them(
    call: str, spelling: str, repositories: Pair
) -> None:
    tip = repositories[0].lookup_branch("main")
    text = SPELLINGS[spelling](tip)
    expected, found = (outcome(SNAPSHOT_CALLS[call], each, text) for each in repositories)
    assert found == _with_a_kind(expected)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_manifest_ids_are_taken_as_the_reference_takes_them(
    spelling: str, repositories: Pair
) -> None:
    reference, _ = repositories
    (file,) = reference.list_manifest_files(reference.lookup_branch("main"))
    text = SPELLINGS[spelling](file.id)
    expected, found = (outcome(_inspected_manifest, each, text) for each in repositories)
    if expected == refused("unknown"):
        assert is_failure(found)
    else:
        assert found == expected


def _inspected_manifest(repository: Any, text: str) -> str:
    return str(repository.inspect_manifest(text)["id"])


def _with_a_kind(expected: Any) -> Any:
    """The reference gives no kind to a malformed id when it inspects; everywhere else this one."""
    return refused("invalid-snapshot-id") if expected == refused("unknown") else expected


REF_CALLS: dict[str, Callable[[Any, str], Any]] = {
    "lookup_branch": lambda repository, name: repository.lookup_branch(name),
    "lookup_tag": lambda repository, name: repository.lookup_tag(name),
    "branch session": lambda repository, name: repository.readonly_session(branch=name),
    "tag session": lambda repository, name: repository.readonly_session(tag=name),
    "branch ancestry": lambda repository, name: list(repository.ancestry(branch=name)),
    "tag ancestry": lambda repository, name: list(repository.ancestry(tag=name)),
}


@pytest.mark.parametrize(
    "name", ["absent", "", "main ", "Main", "..", "a/b", "/", "gone", "é", "x%"]
)
@pytest.mark.parametrize("call", REF_CALLS)
def test_absent_refs_are_refused_as_by_the_reference(
    call: str, name: str, repositories: Pair
) -> None:
    expected, found = (outcome(REF_CALLS[call], each, name) for each in repositories)
    assert is_failure(expected)
    assert found == expected


@pytest.mark.parametrize("kind", ["branch", "tag"])
@pytest.mark.parametrize("spec_version", SPEC_VERSIONS)
@pytest.mark.parametrize("name", [*PLAIN, *ESCAPED], ids=ascii)
def test_refs_are_listed_under_the_names_that_they_were_given(
    name: str, spec_version: int, kind: str, tmp_path: Any
) -> None:
    refs = (plans.CreateRef("tag", "", 0, 0), plans.CreateRef(kind, name + "z", 0, 1))
    reference, ours = _made(str(tmp_path), spec_version, refs)
    listed = ours.list_branches() - {"main"} if kind == "branch" else ours.list_tags()
    assert listed == {name + "z"}
    lookup = f"lookup_{kind}"
    assert getattr(ours, lookup)(name + "z") == getattr(reference, lookup)(name + "z")


@pytest.mark.parametrize("call", ["readonly_session", "ancestry"])
@pytest.mark.parametrize(
    "names",
    [
        {},
        {"branch": "main", "tag": "t"},
        {"branch": "main", "snapshot_id": "1CECHNKREP0F1RSTCMT0"},
        {"tag": "t", "snapshot_id": "1CECHNKREP0F1RSTCMT0"},
    ],
    ids=lambda names: "+".join(names) or "none",
)
def test_exactly_one_ref_must_be_named(
    call: str, names: dict[str, str], repositories: Pair
) -> None:
    for repository in repositories:
        with pytest.raises(ValueError, match=r"branch.*tag.*snapshot"):
            list(getattr(repository, call)(**names))


SHIFTS = (timedelta(0), timedelta(microseconds=-1), timedelta(microseconds=1), timedelta(days=9))


@pytest.mark.parametrize("shift", SHIFTS, ids=str)
@pytest.mark.parametrize("back", [0, 1, 2])
def test_as_of_takes_the_newest_snapshot_not_after_the_time(
    back: int, shift: timedelta, repositories: Pair
) -> None:
    infos = list(repositories[0].ancestry(branch="main"))
    time = infos[back].written_at + shift
    expected, found = (outcome(_as_of, each, time) for each in repositories)
    assert found == expected


def test_as_of_takes_any_time_zone_but_not_none(repositories: Pair) -> None:
    for repository in repositories:
        tip = repository.lookup_branch("main")
        there = datetime.fromtimestamp(4_000_000_000, UTC).astimezone()
        assert _as_of(repository, there) == tip
        with pytest.raises(TypeError):
            _as_of(repository, there.replace(tzinfo=None))


@pytest.mark.parametrize("names", [{"snapshot_id": "1CECHNKREP0F1RSTCMT0"}, {"tag": "t"}, {}])
def test_as_of_goes_with_a_branch_only(names: dict[str, str], repositories: Pair) -> None:
    for repository in repositories:
        with pytest.raises(ValueError, match="branch"):
            repository.readonly_session(**names, as_of=datetime.fromtimestamp(0, UTC))


def _as_of(repository: Any, time: datetime) -> str:
    return str(repository.readonly_session(branch="main", as_of=time).snapshot_id)
