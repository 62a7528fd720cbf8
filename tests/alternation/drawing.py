"""Draws edits that fit the state of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.alternation import edits
from tests.alternation.drafts import Draft
from tests.alternation.edits import VIRTUAL_BYTES, Edit, Index
from tests.alternation.states import Array, State, array_at, is_below

if TYPE_CHECKING:
    from collections.abc import Callable

    Draw = Callable[[st.SearchStrategy[Any]], Any]

NAMES = ("a", "b", "a-b", "a.b", "a b", "a(b)", "a%b", "é", "c", ".a", "0", "ab")
DTYPES = ("|u1", "<i2", "<f4", "<f8")
_LENGTHS = st.sampled_from((4, 5, 3, 8, 1, 0))
_STEPS = st.sampled_from((2, 1, 3, 9))
_ATTRIBUTES = st.dictionaries(
    st.sampled_from(("k", "é", "long name")),
    st.integers(-5, 2**40) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2),
    max_size=2,
)
_KINDS = (
    *("chunk", "chunk", "chunk", "array", "array", "group", "attributes", "resize", "fill"),
    *("delete node", "recreate", "virtual", "delete chunk", "delete chunks"),
)
_OF_CHUNKS = ("chunk", "fill", "virtual", "delete chunk", "delete chunks")
_OF_ARRAYS = ("recreate", "resize")
_OF_NODES = ("attributes", "delete node")
MAX_NODES = 9


def draw_edits(
    draw: Draw, draft: Draft, virtual_file: str, without: frozenset[str] = frozenset()
) -> list[Edit]:
    """Some edits, one on top of the other, which the draft has then; not of some kinds."""
    kinds = [kind for kind in _KINDS if kind not in without]
    made: list[Edit] = []
    for _ in range(draw(st.integers(1, 5) if draft.state else st.integers(4, 8))):
        edit = draw_edit(draw, kinds, draft.state, virtual_file)
        made.append(edit)
        draft.edit(edit)
    return made


def draw_edit(draw: Draw, kinds: list[str], state: State, virtual_file: str) -> Edit:
    if not state:
        return edits.PutGroup("/", draw(_ATTRIBUTES))
    kind = draw(st.sampled_from(kinds))
    if kind in _OF_CHUNKS and (grids := _with_chunks(state)):
        return _chunks(draw, kind, draw(st.sampled_from(grids)), state, virtual_file)
    if kind in _OF_ARRAYS and (arrays := _arrays(state)):
        path = draw(st.sampled_from(arrays))
        return (
            _resize(draw, path, state) if kind == "resize" else _array(draw, path, overwrite=True)
        )
    if kind in _OF_NODES:
        return _of_node(draw, kind, draw(st.sampled_from(sorted(state))))
    return _new_node(draw, kind, state)


def draw_touch(state: State, number: int) -> Edit:
    """A change for certain."""
    attributes = {"touched": number}
    return edits.SetAttributes("/", attributes) if state else edits.PutGroup("/", attributes)


def _with_chunks(state: State) -> list[str]:
    return [path for path in _arrays(state) if 0 not in array_at(state, path).grid]


def _arrays(state: State) -> list[str]:
    return sorted(path for path, node in state.items() if isinstance(node, Array))


def _of_node(draw: Draw, kind: str, path: str) -> Edit:
    """The root is deleted more rarely than others."""
    if kind == "delete node" and (path != "/" or draw(st.integers(0, 3)) == 3):
        return edits.DeleteNode(path, draw(st.booleans()))
    return edits.SetAttributes(path, draw(_ATTRIBUTES))


def _new_node(draw: Draw, kind: str, state: State) -> Edit:
    if len(state) >= MAX_NODES:
        return edits.DeleteNode(max(state), by_document=False)
    path = _new_path(draw, state)
    if kind == "group":
        return edits.PutGroup(path, draw(_ATTRIBUTES))
    return _array(draw, path, overwrite=False)


def _new_path(draw: Draw, state: State) -> str:
    """Below a group; now and then below nothing."""
    groups = sorted(path for path, node in state.items() if not isinstance(node, Array))
    parent = draw(st.sampled_from([*groups, "/"]))
    if draw(st.integers(0, 9)) == 9:
        parent = parent.rstrip("/") + "/nothing"
    arrays = [path for path, node in state.items() if isinstance(node, Array)]
    names = [parent.rstrip("/") + "/" + name for name in NAMES]
    free = [
        path
        for path in names
        if path not in state and not any(is_below(path, array) for array in arrays)
    ]
    return str(draw(st.sampled_from(free)))


def _array(draw: Draw, path: str, *, overwrite: bool) -> Edit:
    rank = draw(st.sampled_from((1, 2, 1, 3, 0)))
    shape = tuple(draw(_LENGTHS) for _ in range(rank))
    steps = tuple(draw(_STEPS) for _ in range(rank))
    names = draw(st.none() | st.just(("x", None, "y")[:rank])) if rank else None
    fill, dtype = draw(st.sampled_from((0, 111))), draw(st.sampled_from(DTYPES))
    return edits.PutArray(path, dtype, shape, steps, fill, names, draw(_ATTRIBUTES), overwrite)


def _resize(draw: Draw, path: str, state: State) -> Edit:
    shape = tuple(draw(_LENGTHS) for _ in array_at(state, path).shape)
    return edits.Resize(path, shape, by_document=draw(st.integers(0, 3)) == 3)


def _chunks(draw: Draw, kind: str, path: str, state: State, virtual_file: str) -> Edit:
    array = array_at(state, path)
    index = _index(draw, array)
    match kind:
        case "chunk":
            seed = draw(st.integers(0, 200))
            return edits.SetChunk(path, index, seed, array.chunk_size)
        case "delete chunk":
            known = [at for at in sorted(array.chunks) if array.holds(at)]
            return edits.DeleteChunk(path, draw(st.sampled_from([*known, index])))
        case "delete chunks":
            return edits.DeleteChunks(path, index[: draw(st.integers(0, len(index)))])
        case "fill":
            return edits.Fill(path, draw(st.none() | st.integers(0, 90)))
        case _:
            return _virtual(draw, path, array, virtual_file)


def _virtual(draw: Draw, path: str, array: Array, virtual_file: str) -> Edit:
    size = array.chunk_size
    known = list(array.indices())
    count = min(len(known), len(VIRTUAL_BYTES) // size, 4)
    if not count:
        return edits.DeleteChunks(path, ())
    indices = draw(st.lists(st.sampled_from(known), min_size=1, max_size=count, unique=True))
    offset = draw(st.integers(0, len(VIRTUAL_BYTES) - size * len(indices)))
    return edits.SetVirtual(path, tuple(indices), offset, size, virtual_file)


def _index(draw: Draw, array: Array) -> Index:
    return tuple(draw(st.integers(0, size - 1)) for size in array.grid)
