"""The contract of a storage: subclass ``StorageContract``, give it a ``storage``, run pytest."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier
from typing import TYPE_CHECKING, ClassVar

import pytest

from icechunk_stream.effects import now_micros
from icechunk_stream.errors import (
    ErrorKind,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
)
from icechunk_stream.storage import (
    ByteRange,
    BytesLike,
    Fetched,
    From,
    Last,
    LostRace,
    Missing,
    NotModified,
    ReadRequest,
    Span,
    Storage,
    Version,
    Written,
)
from icechunk_stream.testing.storage_steps import (
    create,
    fetch,
    in_one_loop,
    increment,
    keys,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TEN = b"0123456789"
TERABYTE = 1 << 40
DAY = 24 * 60 * 60 * 1_000_000

ODD_KEYS = (
    "a",
    "a-b",
    "a.b",
    "a/b",
    "a/b-c",
    "ab",
    "A",
    "a b",
    "a+b",
    "a%2Fb",
    "a%",
    "a#1",
    "#1",
    "tmp#1",
    "a~",
    "a*?<>|[]^`{}\\\"'",
    "a:b;c=d@e,f!g$h&i(j)",
    ".hidden",
    "...",
    "b./c",
    "é",
    "e\u0301",
    "tag.é ü/ref.json",
    "日本",
    "\u200b",
    "\uffff",
    "\U0001f600",
    "refs/branch./ref.json",
    "refs/tag.../ref.json",
)

ANSWERS: tuple[tuple[ByteRange | None, bytes], ...] = (
    (None, TEN),
    (Span(0, 10), TEN),
    (Span(0, 1), b"0"),
    (Span(3, 7), b"3456"),
    (Span(9, 10), b"9"),
    (Span(8, 11), b"89"),
    (Span(4, TERABYTE), b"456789"),
    (From(0), TEN),
    (From(9), b"9"),
    (Last(1), b"9"),
    (Last(9), b"123456789"),
    (Last(10), TEN),
    (Last(11), TEN),
    (Last(TERABYTE), TEN),
)

BAD_KEYS = ("", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "../a", "a/..", "a\0b", "\ud800")


class StorageSemantics:
    """What every backend does, for one writer. A subclass gives an empty storage to each test."""

    odd_keys: ClassVar[tuple[str, ...]] = ODD_KEYS
    versions_come_back: ClassVar[bool] = False
    """Whether the version of an object is made from its bytes, as the ETags of S3 are."""

    @pytest.fixture
    def storage(self) -> Storage:
        raise NotImplementedError

    @pytest.mark.parametrize("data", [b"", b"\0", TEN, bytes(range(256)) * 8192])
    def test_an_object_is_read_back(self, storage: Storage, data: bytes) -> None:
        storage.put("chunks/A", data)
        assert storage.get("chunks/A") == data

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_every_kind_of_buffer_is_written(self, storage: Storage, kind: type[BytesLike]) -> None:
        data = kind(TEN)
        storage.put("put", data)
        version = create(storage, "swapped", data)
        update(storage, "swapped", data, version)
        assert (storage.get("put"), storage.get("swapped")) == (TEN, TEN)
        assert type(storage.get("put")) is bytes

    @pytest.mark.parametrize(("byte_range", "expected"), ANSWERS)
    def test_a_range_gives_the_bytes_that_exist(
        self, storage: Storage, byte_range: ByteRange | None, expected: bytes
    ) -> None:
        storage.put("chunks/A", TEN)
        assert storage.get("chunks/A", byte_range) == expected

    @pytest.mark.parametrize("byte_range", [Span(10, 11), Span(TERABYTE, 2 * TERABYTE), From(10)])
    def test_a_range_past_the_end_is_an_error(
        self, storage: Storage, byte_range: ByteRange
    ) -> None:
        storage.put("chunks/A", TEN)
        with pytest.raises(StorageError, match="past the end") as caught:
            storage.get("chunks/A", byte_range)
        assert caught.value.kind == ErrorKind.INVALID_BYTE_RANGE
        assert caught.value.key == "chunks/A"

    def test_an_event_loop_gets_what_threads_get(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        asked = [byte_range for byte_range, _ in ANSWERS] * 20
        assert in_one_loop(storage, asked) == [storage.get("chunks/A", each) for each in asked]
        with ThreadPoolExecutor(4) as pool:
            loops = [pool.submit(in_one_loop, storage, asked[:9]) for _ in range(8)]
        assert [loop.result() for loop in loops] == [in_one_loop(storage, asked[:9])] * 8

    def test_an_event_loop_gets_the_errors_that_threads_get(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        with pytest.raises(ObjectNotFoundError) as caught:
            asyncio.run(storage.get_async("chunks/B", Span(0, 1)))
        assert caught.value.key == "chunks/B"
        with pytest.raises(StorageError, match="past the end"):
            asyncio.run(storage.get_async("chunks/A", Span(10, 11)))
        with pytest.raises(InvalidInputError):
            asyncio.run(storage.get_async("../A", Span(0, 1)))

    def test_an_empty_object_has_no_bytes_but_its_last_ones(self, storage: Storage) -> None:
        storage.put("chunks/A", b"")
        assert storage.get("chunks/A", Last(5)) == b""
        with pytest.raises(StorageError, match="past the end"):
            storage.get("chunks/A", From(0))

    def test_an_absent_object_is_named_as_such(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        for key in ("chunks/B", "chunks/A/B", "manifests/A", "chunk", "n" * 300):
            assert storage.stat(key) is None
            assert storage.read(key) == Missing()
            with pytest.raises(ObjectNotFoundError, match="there is no object") as caught:
                storage.get(key, Last(1))
            assert caught.value.key == key

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_what_is_no_key_is_refused(self, storage: Storage, key: str) -> None:
        with pytest.raises(InvalidInputError):
            storage.get(key)
        with pytest.raises(InvalidInputError):
            storage.read(key)
        with pytest.raises(InvalidInputError):
            storage.stat(key)
        with pytest.raises(InvalidInputError):
            storage.put(key, b"")
        with pytest.raises(InvalidInputError):
            storage.put_many([("ok", b""), (key, b"")])
        with pytest.raises(InvalidInputError):
            storage.put_if(key, b"", None)
        with pytest.raises(InvalidInputError):
            storage.copy_if("a", key, Version("1"))
        with pytest.raises(InvalidInputError):
            storage.delete_many(["a", key])

    def test_a_batch_is_answered_in_the_order_of_its_requests(self, storage: Storage) -> None:
        storage.put_many([(f"chunks/{number}", str(number).encode()) for number in range(100)])
        requests = [ReadRequest(f"chunks/{number}") for number in reversed(range(100))]
        assert storage.get_many(requests) == [str(n).encode() for n in reversed(range(100))]
        ranged = [ReadRequest("chunks/42", Last(1)), ReadRequest("chunks/42", Span(0, 1))]
        assert storage.get_many(ranged) == [b"2", b"4"]
        spans = [ReadRequest(f"chunks/{number}", Span(0, 1)) for number in range(100)]
        assert storage.get_many(spans) == [str(n).encode()[:1] for n in range(100)]
        assert storage.get_many([]) == []

    def test_a_batch_with_an_absent_object_fails(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        with pytest.raises(ObjectNotFoundError):
            storage.get_many([ReadRequest("chunks/A"), ReadRequest("chunks/B")])
        with pytest.raises(ObjectNotFoundError) as caught:
            storage.get_many([ReadRequest(f"chunks/{name}", Span(0, 1)) for name in "ABC"])
        assert caught.value.key == "chunks/B"
        with pytest.raises(InvalidInputError):
            storage.get_many([ReadRequest("chunks/A", Span(0, 1)), ReadRequest("../A")])

    def test_batches_inside_the_pool_do_not_wait_for_it(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        requests = [ReadRequest("chunks/A"), ReadRequest("chunks/A", Span(0, 10))] * 2
        count = 2 * storage.concurrency
        batches = [storage.executor.submit(storage.get_many, requests) for _ in range(count)]
        assert not wait(batches, timeout=60).not_done
        assert [batch.result() for batch in batches] == [[TEN] * 4] * count

    def test_a_submitted_read_gives_bytes_or_the_error(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        assert storage.submit("chunks/A", Last(2)).result() == b"89"
        assert isinstance(storage.submit("chunks/B").exception(), ObjectNotFoundError)

    def test_an_object_has_size_and_time(self, storage: Storage) -> None:
        storage.put("chunks/A", TEN)
        info = storage.stat("chunks/A")
        assert info is not None
        assert (info.key, info.size) == ("chunks/A", 10)
        assert abs(info.modified_at - now_micros()) < DAY
        assert list(storage.list()) == [info]

    def test_put_replaces_and_changes_the_version(self, storage: Storage) -> None:
        storage.put("snapshots/A", b"old")
        before = fetch(storage, "snapshots/A")
        storage.put("snapshots/A", b"new")
        after = fetch(storage, "snapshots/A")
        assert (before.data, after.data) == (b"old", b"new")
        assert before.version != after.version
        assert storage.put_if("snapshots/A", b"lost", before.version) == LostRace()

    @pytest.mark.parametrize("pieces", [[], [TEN], [b"", b"01", memoryview(b"2345"), b"6789"]])
    def test_pieces_become_one_object(self, storage: Storage, pieces: list[BytesLike]) -> None:
        storage.put("chunks/A", b"old")
        storage.put_pieces("chunks/A", iter(pieces))
        assert storage.get("chunks/A") == b"".join(pieces)

    def test_without_all_of_its_pieces_nothing_is_put(self, storage: Storage) -> None:
        def pieces() -> Iterator[bytes]:
            yield TEN
            raise LookupError

        storage.put("chunks/A", b"old")
        with pytest.raises(LookupError):
            storage.put_pieces("chunks/A", pieces())
        assert storage.get("chunks/A") == b"old"
        assert keys(storage) == ["chunks/A"]

    def test_create_wins_only_where_nothing_is(self, storage: Storage) -> None:
        version = create(storage, "repo", b"first")
        assert fetch(storage, "repo") == Fetched(b"first", version)
        assert storage.put_if("repo", b"second", None) == LostRace()
        assert fetch(storage, "repo") == Fetched(b"first", version)

    def test_update_wins_only_from_the_present_version(self, storage: Storage) -> None:
        first = create(storage, "repo", b"first")
        second = update(storage, "repo", b"other", first)
        assert storage.put_if("repo", b"stale", first) == LostRace()
        assert fetch(storage, "repo") == Fetched(b"other", second)

    def test_update_of_an_absent_object_is_lost(self, storage: Storage) -> None:
        version = create(storage, "repo", b"first")
        storage.delete_many(["repo"])
        assert storage.put_if("repo", b"second", version) == LostRace()
        assert storage.put_if("elsewhere/repo", b"second", version) == LostRace()
        assert keys(storage) == []

    def test_versions_of_different_contents_never_repeat(self, storage: Storage) -> None:
        version = create(storage, "repo", b"000")
        seen = {version}
        for number in range(1, 100):
            version = update(storage, "repo", b"%03d" % number, version)
            seen.add(version)
        for number in range(100, 200):
            storage.delete_many(["repo"])
            seen.add(create(storage, "repo", b"%03d" % number))
        assert len(seen) == 200

    def test_the_same_content_written_again_is_another_version(self, storage: Storage) -> None:
        first = create(storage, "repo", b"A")
        second = update(storage, "repo", b"B", first)
        third = update(storage, "repo", b"A", second)
        if self.versions_come_back:
            assert first == third != second
            assert storage.put_if("repo", b"C", second) == LostRace()
        else:
            assert len({first, second, third}) == 3
            assert storage.put_if("repo", b"C", first) == LostRace()

    def test_a_known_version_is_not_sent_again(self, storage: Storage) -> None:
        version = create(storage, "repo", b"first")
        assert storage.read("repo", version) == NotModified()
        newer = update(storage, "repo", b"other", version)
        assert storage.read("repo", version) == Fetched(b"other", newer)
        storage.delete_many(["repo"])
        assert storage.read("repo", newer) == Missing()

    def test_a_copy_is_of_the_expected_version(self, storage: Storage) -> None:
        version = create(storage, "repo", b"first")
        copied = storage.copy_if("repo", "overwritten/repo.1", version)
        assert copied == Written(fetch(storage, "overwritten/repo.1").version)
        assert storage.get("overwritten/repo.1") == b"first"
        update(storage, "repo", b"second", version)
        assert storage.copy_if("repo", "overwritten/repo.2", version) == LostRace()
        assert storage.copy_if("absent", "overwritten/repo.3", version) == LostRace()
        assert keys(storage, "overwritten/") == ["overwritten/repo.1"]

    def test_odd_names_are_kept_and_listed_in_byte_order(self, storage: Storage) -> None:
        names = [f"odd/{number}/{key}" for number, key in enumerate(self.odd_keys)]
        names += [f"flat/{key.replace('/', '_')}" for key in self.odd_keys]
        storage.put_many([(name, name.encode()) for name in names])
        assert keys(storage) == sorted(names, key=str.encode)
        assert [storage.get(name) for name in names] == [name.encode() for name in names]
        assert storage.delete_many(names) == []
        assert keys(storage) == []

    def test_thousands_of_keys_are_listed_in_byte_order(self, storage: Storage) -> None:
        names = [f"chunks/{number * 7919 % 100_003:x}" for number in range(2_450)]
        names += [
            f"chunks{end}{number}" for end in ("-", "-/", "/g/", "0/") for number in range(25)
        ]
        storage.put_many([(name, b"") for name in names])
        expected = sorted(names, key=str.encode)
        assert keys(storage) == expected
        for prefix in ("chunks/", "chunks/a", "chunks-", "chunks/g/2", "c"):
            assert keys(storage, prefix) == [name for name in expected if name.startswith(prefix)]
        assert storage.delete_many(names) == []
        assert keys(storage) == []

    def test_a_prefix_is_a_text_and_not_a_directory(self, storage: Storage) -> None:
        names = ["refs/branch.a/ref.json", "refs/branch.ab/ref.json", "refs/tag.a/ref.json", "repo"]
        storage.put_many([(name, b"") for name in names])
        assert keys(storage, "re") == names
        assert keys(storage, "refs/branch.a") == names[:2]
        assert keys(storage, "refs/branch.a/") == names[:1]
        assert keys(storage, "repo") == ["repo"]
        for absent in ("/", "repo/", "x/", "refs//", "./", "../", "refs/../", "\0", "\ud800"):
            assert keys(storage, absent) == []

    def test_an_empty_storage_lists_nothing(self, storage: Storage) -> None:
        assert keys(storage) == []
        assert storage.delete_many(["a", "b/c"]) == []

    def test_delete_takes_what_is_there(self, storage: Storage) -> None:
        storage.put_many([("a/1", b""), ("a/2", b""), ("b/1", b"")])
        assert storage.delete_many(["a/1", "a/9", "a/1", "b/1", "c/1"]) == []
        assert keys(storage) == ["a/2"]


class StorageContract(StorageSemantics):
    """What every backend does, races included."""

    def test_each_increment_of_many_threads_is_kept(self, storage: Storage) -> None:
        create(storage, "repo", b"0")
        with ThreadPoolExecutor(8) as pool:
            tasks = [pool.submit(increment, storage, "repo") for _ in range(400)]
        assert sorted(task.result() for task in tasks) == list(range(1, 401))
        assert storage.get("repo") == b"400"

    def test_one_of_many_threads_creates(self, storage: Storage) -> None:
        barrier = Barrier(8)

        def race(me: int) -> list[int]:
            return [number for number in range(100) if won(number, me)]

        def won(number: int, me: int) -> bool:
            barrier.wait(60)
            return storage.put_if(f"refs/{number}", str(me).encode(), None) != LostRace()

        with ThreadPoolExecutor(8) as pool:
            wins = list(pool.map(race, range(8)))
        assert sorted(number for mine in wins for number in mine) == list(range(100))
        for me, mine in enumerate(wins):
            assert all(storage.get(f"refs/{number}") == str(me).encode() for number in mine)
