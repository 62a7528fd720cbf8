"""Listings of stores whose order is not quite that of keys."""

import random

import pytest

from icechunk_stream.errors import StorageError
from icechunk_stream.storage import ObjectInfo
from icechunk_stream.storage.escaped_names import EscapedNames
from icechunk_stream.storage.listing_order import in_byte_order
from icechunk_stream.testing.storage_contract import ODD_KEYS

CHARACTERS = " !\"#$%&'-./0aZ~é\u200b\U0001f600"


def sort(keys: list[str], window: int = 20) -> list[str]:
    infos = (ObjectInfo(key, 0, 0) for key in keys)
    return [info.key for info in in_byte_order(infos, "the store", window)]


def random_keys(seed: int) -> list[str]:
    dice = random.Random(seed)
    segments = ["".join(dice.choices(CHARACTERS, k=3)).replace("/", "_") for _ in range(12)]
    keys = {"/".join(dice.choices(segments, k=dice.randint(1, 3))) for _ in range(150)}
    return sorted(keys, key=str.encode)


@pytest.mark.parametrize("seed", range(20))
def test_escaped_names_come_in_the_order_of_their_keys(seed: int) -> None:
    keys = random_keys(seed)
    names = EscapedNames.below("p")
    listed = sorted(names.name(key) for key in keys)
    found = [names.key(name) for name in listed]
    assert sort([key for key in found if key is not None], window=200) == keys


@pytest.mark.parametrize("seed", range(20))
def test_folders_that_come_before_their_neighbours_are_put_right(seed: int) -> None:
    keys = random_keys(seed)
    listed = sorted(keys, key=lambda key: [segment.encode() for segment in key.split("/")])
    assert sort(listed, window=200) == keys


def test_a_listing_is_not_held_back_beyond_its_window() -> None:
    taken = 0

    def endless() -> object:
        nonlocal taken
        for number in range(1_000_000):
            taken += 1
            yield ObjectInfo(f"{number:07}", 0, 0)

    first = next(in_byte_order(endless(), "the store", 100))  # type: ignore[arg-type]
    assert (first.key, taken) == ("0000000", 101)


def test_a_listing_in_another_order_altogether_is_refused() -> None:
    with pytest.raises(StorageError, match="the store lists 'a' after names") as caught:
        sort([f"b/{number:02}" for number in range(50)] + ["a"])
    assert caught.value.key == "a"


def test_names_that_others_left_spell_no_key() -> None:
    names = EscapedNames.below("a//b/")
    assert [names.key(names.name(key)) for key in ODD_KEYS] == list(ODD_KEYS)
    for name in ("c", "a/b", "a/b/", "a/b//c", "a/b/é", "a/b/%zz", "a/b/%41", "a/b/../c"):
        assert names.key(name) is None


@pytest.mark.parametrize(
    ("prefix", "root"),
    [(None, ""), ("", ""), ("/", ""), ("a", "a/"), ("/a//b/", "a/b/"), ("..", "%2E%2E/")],
)
def test_a_prefix_has_no_empty_segments(prefix: str | None, root: str) -> None:
    assert EscapedNames.below(prefix).root == root
