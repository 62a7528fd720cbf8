"""When a function that gives access keys is called."""

from datetime import UTC, datetime, timedelta

from icechunk_stream.credentials import (
    S3Refreshable,
    S3StaticCredentials,
    s3_refreshable_credentials,
)
from icechunk_stream.storage.s3_credentials import KeyRing
from tests.secret_marker import MARKER

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Issuer:
    """Gives out keys, and counts them."""

    def __init__(self, life: timedelta | None) -> None:
        self.life = life
        self.now = NOON
        self.calls = 0

    def __call__(self) -> S3StaticCredentials:
        self.calls += 1
        ends = None if self.life is None else self.now + self.life
        return S3StaticCredentials(f"key{self.calls}", MARKER, None, ends)


def ring_of(issuer: Issuer, current: S3StaticCredentials | None = None) -> KeyRing:
    return KeyRing(S3Refreshable(issuer, current), now=lambda: issuer.now)


def used(ring: KeyRing) -> str:
    return ring.current().access_key_id


def test_a_key_is_called_for_when_it_is_about_to_end() -> None:
    issuer = Issuer(timedelta(hours=1))
    ring = ring_of(issuer)
    assert [used(ring), used(ring), issuer.calls] == ["key1", "key1", 1]
    issuer.now += timedelta(minutes=54)
    assert used(ring) == "key1"
    issuer.now += timedelta(minutes=2)
    assert used(ring) == "key2"


def test_a_key_of_a_short_life_is_not_called_for_each_time() -> None:
    issuer = Issuer(timedelta(minutes=1))
    ring = ring_of(issuer)
    assert [used(ring), used(ring)] == ["key1", "key1"]
    issuer.now += timedelta(seconds=50)
    assert used(ring) == "key2"


def test_a_key_without_an_end_is_renewed_now_and_then() -> None:
    issuer = Issuer(None)
    ring = ring_of(issuer)
    assert [used(ring), used(ring)] == ["key1", "key1"]
    issuer.now += timedelta(minutes=15)
    assert used(ring) == "key2"


def test_a_scattered_key_is_used_until_it_ends() -> None:
    issuer = Issuer(timedelta(hours=1))
    first = issuer()
    ring = ring_of(issuer, first)
    assert (used(ring), issuer.calls) == ("key1", 1)
    late = ring_of(issuer, S3StaticCredentials("old", "s", None, NOON - timedelta(hours=1)))
    assert used(late) == "key2"


def test_scattering_calls_at_once() -> None:
    issuer = Issuer(None)
    scattered = s3_refreshable_credentials(issuer, scatter_initial_credentials=True)
    assert scattered.current == S3StaticCredentials("key1", MARKER)
    assert s3_refreshable_credentials(issuer).current is None
