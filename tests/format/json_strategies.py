"""JSON-like values of every kind and size."""

from __future__ import annotations

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# The reference library cuts keys at a NUL.
keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
integers = st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 70_000)
floats = st.floats(allow_nan=False, allow_infinity=False) | st.floats(
    allow_nan=False, allow_infinity=False, width=32
)
scalars = (
    st.none()
    | st.booleans()
    | integers
    | floats
    | texts
    | st.text("aé", min_size=200, max_size=400)
)


def _containers(children: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return (
        st.lists(children, max_size=6)
        | st.dictionaries(keys, children, max_size=5)
        | st.lists(st.integers(-(2**40), 2**40), max_size=300)
        | st.lists(st.booleans(), max_size=5)
        | st.lists(floats, max_size=5)
    )


values = st.recursive(scalars, _containers, max_leaves=25)
metadata = st.dictionaries(keys, values, min_size=1, max_size=20)
