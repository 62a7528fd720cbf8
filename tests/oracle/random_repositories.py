"""Hypothesis strategies for plans of repositories: small, and odd in every way that is legal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.oracle import plans

if TYPE_CHECKING:
    from pathlib import Path

# Names that sort around `/`, share prefixes, or need care in URLs, file names and key parsing.
NODE_NAMES = (
    *("a", "b", "ab", "A", "a-b", "a.b", "a b", "a(b", "a%b", "a%2Fb", "a+b", "a#b", "a?b", "a\\b"),
    *("c", "cc", "0", "x", ".a", "...", "zarr", "!", "~", "\x7f", "\t", "a'b", 'a"b', "a:b", "a*b"),
    *("\u00e9", "e\u0301", "ö", "ß", "日本", "😀", "a😀", "\uffee", "\ue000", "\u200d", "n" * 200),
)
# On local disk 2.3.0 lists the names of spec v1 as they are escaped: only names without escapes.
REF_NAMES_V1 = (
    "t",
    "v1.0",
    "a b",
    "a-b",
    "..",
    ".",
    "A",
    "a",
    "tag.x",
    "(1)",
    "a:b",
    "",
    "n" * 200,
)
REF_NAMES_V2 = (*REF_NAMES_V1, "x%y", "é ü", "日本", "%2F", "q?", "#", "a/b", "/", "a//b")
FILES = {"f0.bin": 64, "sub/f x.bin": 40, "é%.bin": 16}
LOCATIONS = (
    "f0.bin",
    "sub/f%20x.bin",
    "sub/f x.bin",
    "%C3%A9%25.bin",
    "absent.bin",
    "sub/../f0.bin",
)
ELSEWHERE = (
    *("s3://locked/a/b.nc", "s3://locked/inner/é%20.nc", "S3://locked/x//y/../z.nc?v=1#f"),
    *("s3://other/key", "gs://nowhere/x/y", "https://example.invalid/d/f.nc"),
)
RELATIVE = ("vcc://files/f0.bin", "vcc://files/sub/f%20x.bin", "vcc://nobody/x.bin")
_LONG_AGO, _FAR_OFF = 1_000_000_000, 4_000_000_000


def write_files(folder: Path) -> plans.Containers:
    """The local files that virtual chunks refer to."""
    for name, size in FILES.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(bytes(range(size)))
    return plans.Containers(str(folder))


def _texts() -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), max_size=6)


def _keys() -> st.SearchStrategy[str]:
    """The reference panics over a NUL in a key: FlexBuffers end keys with it."""
    return st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


def json_values() -> st.SearchStrategy[Any]:
    leaves = (
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.floats(width=32, allow_nan=False, allow_infinity=False)
        | _texts()
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys(), inner, max_size=3),
        max_leaves=6,
    )


def json_objects() -> st.SearchStrategy[dict[str, Any]]:
    return st.just({}) | st.dictionaries(_keys(), json_values(), max_size=3)


def paths() -> st.SearchStrategy[str]:
    names = st.sampled_from(NODE_NAMES[:4]) | st.sampled_from(NODE_NAMES)
    return st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))


_SMALL = st.integers(0, 7)


@st.composite
def _arrays(draw: st.DrawFn) -> plans.PutArray:
    rank = draw(st.sampled_from((1, 1, 2, 0, 3)))
    length = st.sampled_from((5, 4, 8, 3, 1, 0))
    shape = tuple(draw(st.lists(length, min_size=rank, max_size=rank)))
    step = st.sampled_from((2, 1, 3, 9))
    chunks = tuple(draw(st.lists(step, min_size=rank, max_size=rank)))
    name = st.sampled_from(("x", "y", "t", "", None))
    names = draw(st.none() | st.lists(name, min_size=rank, max_size=rank).map(tuple))
    return plans.PutArray(draw(paths()), shape, chunks, names, draw(json_objects()))


def _virtual(containers: plans.Containers, spec_version: int) -> st.SearchStrategy[plans.Change]:
    local = tuple(containers.prefix + name for name in LOCATIONS)
    relative = RELATIVE if spec_version == 2 else ()
    checksums = st.sampled_from(
        ({}, {}, {"etag": '"abc"'}, {"etag": "é"}, {"modified": _LONG_AGO}, {"modified": _FAR_OFF})
    )
    return st.builds(
        lambda checksum, **fields: plans.WriteVirtual(**fields, **checksum),
        checksums,
        array=_SMALL,
        index=st.integers(0, 30),
        locations=st.lists(
            st.sampled_from(local) | st.sampled_from(local + relative + ELSEWHERE),
            min_size=1,
            max_size=8,
        ).map(tuple),
        offset=st.integers(0, 20) | st.sampled_from((2**32, 2**63)),
        length=st.integers(1, 20) | st.just(2**40),
    )


def _payloads(containers: plans.Containers, spec_version: int) -> st.SearchStrategy[plans.Change]:
    write = st.builds(
        plans.WriteChunks,
        array=_SMALL,
        index=st.integers(0, 30),
        count=st.sampled_from((3, 1, 6)),
        length=st.none() | st.none() | st.sampled_from((1, 4, 5, 600)),
        fill=st.integers(0, 255),
    )
    return write | write | _virtual(containers, spec_version)


def _changes(containers: plans.Containers, spec_version: int) -> st.SearchStrategy[plans.Change]:
    rare = (
        st.builds(plans.DeleteChunk, array=_SMALL, index=st.integers(0, 30))
        | st.builds(
            plans.Resize, array=_SMALL, shape=st.lists(st.integers(0, 8), max_size=2).map(tuple)
        )
        | st.builds(plans.DeleteNode, node=_SMALL)
    )
    groups = st.builds(plans.PutGroup, path=paths() | st.just("/"), attributes=json_objects())
    payloads = _payloads(containers, spec_version)
    return groups | _arrays() | payloads | payloads | rare


def _commits(containers: plans.Containers, spec_version: int) -> st.SearchStrategy[plans.Commit]:
    ways = ("commit", "commit", "commit", "flush", *(("amend",) if spec_version == 2 else ()))
    return st.builds(
        plans.Commit,
        branch=_SMALL,
        changes=st.lists(_changes(containers, spec_version), min_size=3, max_size=8).map(tuple),
        message=_texts(),
        metadata=json_objects(),
        way=st.sampled_from(ways),
    )


def _ref_steps(spec_version: int) -> st.SearchStrategy[plans.Step]:
    kinds = st.sampled_from(("tag", "branch"))
    names = st.sampled_from(REF_NAMES_V2 if spec_version == 2 else REF_NAMES_V1)
    create = st.builds(plans.CreateRef, kind=kinds, name=names, branch=_SMALL, back=_SMALL)
    delete = st.builds(plans.DeleteRef, kind=kinds, number=_SMALL)
    return create | create | delete | st.builds(plans.ResetBranch, branch=_SMALL, back=_SMALL)


def _maintenance() -> st.SearchStrategy[plans.Step]:
    rewrite = st.builds(
        plans.RewriteManifests, branch=_SMALL, axis_size=st.none() | st.integers(1, 3)
    )
    reconfigure = st.builds(
        plans.Administer, what=st.just("config"), value=st.sampled_from((0, 3, 100))
    )
    expire = st.builds(plans.Expire, back=_SMALL, drop_refs=st.booleans())
    return expire | st.just(plans.Collect()) | rewrite | reconfigure


def _v2_steps() -> st.SearchStrategy[plans.Step]:
    flags = st.tuples(
        st.sampled_from(("move_node", "create_tag", "delete_tag")),
        st.sampled_from((True, False, None)),
    )
    names = st.sampled_from(NODE_NAMES).map("/{}".format)
    return (
        st.builds(plans.Move, branch=_SMALL, node=_SMALL, target=names)
        | st.builds(plans.Move, branch=_SMALL, node=_SMALL, target=paths())
        | st.builds(plans.Administer, what=st.just("metadata"), value=json_objects())
        | st.builds(plans.Administer, what=st.just("update"), value=json_objects())
        | st.builds(plans.Administer, what=st.just("status"), value=_texts())
        | st.builds(plans.Administer, what=st.just("flag"), value=flags)
    )


def repository_plans(
    containers: plans.Containers, spec_version: int
) -> st.SearchStrategy[plans.Plan]:
    commits = _commits(containers, spec_version)
    others = _ref_steps(spec_version) | _maintenance()
    if spec_version == 2:
        others = others | _v2_steps()
    first = st.builds(
        plans.Commit,
        branch=st.just(0),
        changes=st.tuples(
            st.sampled_from(((plans.PutGroup("/", {}),), ())),
            st.lists(_arrays(), min_size=2, max_size=4),
            st.lists(_payloads(containers, spec_version), min_size=2, max_size=5),
        ).map(lambda parts: (*parts[0], *parts[1], *parts[2])),
        message=_texts(),
        metadata=json_objects(),
    )
    steps = st.tuples(first, commits, st.lists(commits | others, min_size=1, max_size=6)).map(
        lambda parts: (parts[0], parts[1], *parts[2])
    )
    v2_only = st.none() if spec_version == 1 else st.sampled_from((None, 1, 3, 1))
    return st.builds(
        plans.Plan,
        spec_version=st.just(spec_version),
        inline_threshold=st.sampled_from((3, 0, 512)),
        split=st.none() | st.integers(1, 3),
        compress_from=v2_only,
        updates_per_file=v2_only,
        steps=steps,
    )
