"""What a cache of decoded objects keeps, and for how long."""

from collections.abc import Callable

from icechunk_stream.cache import ByteCache


def counting(loads: list[str], value: bytes) -> Callable[[], bytes]:
    def load() -> bytes:
        loads.append(value.decode())
        return value

    return load


def test_a_value_larger_than_the_cache_is_kept_until_the_next_one() -> None:
    cache: ByteCache[bytes] = ByteCache(4, len, keeps_newest=True)
    loads: list[str] = []
    for _ in range(3):
        assert cache.get("large", counting(loads, b"too large")) == b"too large"
    assert loads == ["too large"]
    assert cache.get("small", counting(loads, b"tiny")) == b"tiny"
    assert (cache.peek("large"), cache.peek("small"), cache.held) == (None, b"tiny", 4)


def test_where_the_newest_is_not_kept_a_value_larger_than_the_cache_is_loaded_again() -> None:
    cache: ByteCache[bytes] = ByteCache(4, len)
    loads: list[str] = []
    cache.get("small", counting(loads, b"tiny"))
    for _ in range(2):
        cache.get("large", counting(loads, b"too large"))
    assert loads == ["tiny", "too large", "too large"]
    assert (cache.peek("small"), cache.held) == (b"tiny", 4)


def test_the_value_used_longest_ago_goes_first() -> None:
    cache: ByteCache[bytes] = ByteCache(4, len)
    for key in ("a", "b"):
        cache.get(key, counting([], b"xx"))
    cache.peek("a")
    cache.get("c", counting([], b"xx"))
    assert [cache.peek(key) for key in "abc"] == [b"xx", None, b"xx"]
    assert cache.held == 4


def test_a_cache_without_room_keeps_nothing() -> None:
    cache: ByteCache[bytes] = ByteCache(0, len, keeps_newest=True)
    loads: list[str] = []
    for _ in range(2):
        cache.get("a", counting(loads, b"x"))
    assert (loads, cache.held) == (["x", "x"], 0)
