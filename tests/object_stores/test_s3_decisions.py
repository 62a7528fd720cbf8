"""Retries and read-backs as pure decisions, without a server."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from icechunk_stream.config import StorageRetriesSettings, StorageSettings, StorageTimeoutSettings
from icechunk_stream.effects import random_fraction, random_uuid
from icechunk_stream.errors import ErrorKind, StorageError
from icechunk_stream.storage import S3Storage, optional, s3_clients, s3_obstore
from icechunk_stream.storage.failures import Failure, Trouble, trouble_of
from icechunk_stream.storage.retry import Retry, RetryPolicy
from icechunk_stream.storage.s3_settings import S3Access, Usage, filled_settings
from icechunk_stream.storage.traits import Role, StorageClasses, Traits, traits_of
from tests.object_stores.s3_storages import Hourglass, storage_on
from tests.object_stores.servers import S3Server

ROOT = Path(__file__).parents[2]

BUSY = Failure(Trouble.BUSY)


@dataclass
class Attempts:
    """Outcomes to give in turn, and the numbers of the tries that asked for them."""

    outcomes: list[str | Failure]
    seconds: float = 0.0
    hourglass: Hourglass = field(default_factory=Hourglass)
    tries: list[int] = field(default_factory=list)

    def __call__(self, tries: int) -> str | Failure:
        self.tries.append(tries)
        self.hourglass.now += self.seconds
        return self.outcomes.pop(0)

    def run(self, policy: RetryPolicy) -> str | Failure:
        return Retry(policy, self.hourglass.waiting()).call(self)


def test_a_success_ends_the_tries() -> None:
    attempts = Attempts([BUSY, BUSY, "done", "never asked"])
    assert attempts.run(RetryPolicy()) == "done"
    assert attempts.tries == [0, 1, 2]


def test_a_failure_that_will_not_pass_ends_the_tries() -> None:
    denied = Failure(Trouble.DENIED)
    assert Attempts([BUSY, denied, "never asked"]).run(RetryPolicy()) == denied


def test_pauses_double_up_to_their_bound() -> None:
    attempts = Attempts([BUSY] * 8)
    policy = RetryPolicy(max_tries=8, initial_backoff=1, max_backoff=10, budget=1000)
    assert attempts.run(policy) == BUSY
    assert attempts.hourglass.pauses == [1, 2, 4, 8, 10, 10, 10]


def test_pauses_are_anything_up_to_their_bound() -> None:
    policy = RetryPolicy(initial_backoff=1, max_backoff=10)
    assert [policy.pause(3, fraction) for fraction in (0.0, 0.5, 1.0)] == [0, 2, 4]
    assert policy.pause(2000, 0.5) == 5


def test_no_try_begins_after_the_time_budget() -> None:
    attempts = Attempts([BUSY] * 100, seconds=10)
    policy = RetryPolicy(max_tries=100, initial_backoff=1, max_backoff=1, budget=60)
    assert attempts.run(policy) == BUSY
    assert len(attempts.tries) == 6
    assert attempts.hourglass.now <= 70


def test_a_try_that_was_made_elsewhere_counts_in_the_budget() -> None:
    attempts = Attempts([BUSY] * 9, seconds=10)
    policy = RetryPolicy(max_tries=100, initial_backoff=1, max_backoff=1, budget=60)
    assert Retry(policy, attempts.hourglass.waiting()).call(attempts, spent=40) == BUSY
    assert len(attempts.tries) == 2


def test_a_pause_does_not_outlast_the_budget() -> None:
    attempts = Attempts([BUSY] * 3)
    assert attempts.run(RetryPolicy(initial_backoff=100, max_backoff=100, budget=60)) == BUSY
    assert (attempts.tries, attempts.hourglass.pauses) == ([0], [])


@pytest.mark.parametrize(
    ("status", "code", "trouble"),
    [
        (404, "", Trouble.MISSING),
        (404, "NoSuchKey", Trouble.MISSING),
        (404, "NoSuchBucket", Trouble.REFUSED),
        (409, "", Trouble.CONFLICT),
        (412, "", Trouble.CONFLICT),
        (400, "ConcurrentModification", Trouble.CONFLICT),
        (304, "", Trouble.NOT_MODIFIED),
        (416, "", Trouble.OUT_OF_RANGE),
        (401, "", Trouble.DENIED),
        (403, "Whatever", Trouble.DENIED),
        (400, "ExpiredToken", Trouble.DENIED),
        (503, "SlowDown", Trouble.BUSY),
        (400, "RequestTimeout", Trouble.BUSY),
        (429, "", Trouble.BUSY),
        (408, "", Trouble.BUSY),
        (503, "", Trouble.LOST),
        (500, "InternalError", Trouble.LOST),
        (502, "", Trouble.LOST),
        (504, "", Trouble.LOST),
        (520, "", Trouble.LOST),
        (499, "", Trouble.LOST),
        (None, "", Trouble.LOST),
        (400, "", Trouble.REFUSED),
        (501, "NotImplemented", Trouble.REFUSED),
        (301, "PermanentRedirect", Trouble.REFUSED),
    ],
)
def test_answers_are_told_apart(status: int | None, code: str, trouble: Trouble) -> None:
    assert trouble_of(status, code) is trouble


def test_only_named_troubles_are_transient() -> None:
    transient = {trouble for trouble in Trouble if Failure(trouble).transient}
    assert transient == {Trouble.UNSENT, Trouble.BUSY, Trouble.LOST}


def test_a_failure_says_what_and_how() -> None:
    assert str(Failure(Trouble.BUSY, 503, "SlowDown")) == (
        "the server turned the request away without carrying it out (503 SlowDown)"
    )
    assert str(Failure(Trouble.LOST, detail="no answer came in time")) == "no answer came in time"


def test_settings_become_policy_and_usage() -> None:
    settings = StorageSettings(
        retries=StorageRetriesSettings(7, 20, 3000),
        timeouts=StorageTimeoutSettings(1000, 2000, 3000, 4000),
        storage_class="STANDARD_IA",
        chunks_storage_class="GLACIER_IR",
        unsafe_use_metadata=False,
        minimum_size_for_multipart_upload=5,
    )
    usage = Usage.of(S3Access(), settings)
    assert usage.retries == RetryPolicy(7, 0.02, 3.0, budget=3.0)
    assert (usage.timeouts.connect, usage.timeouts.read, usage.timeouts.attempt) == (1, 2, 4)
    assert usage.classes == StorageClasses("GLACIER_IR", "STANDARD_IA", "STANDARD_IA")
    assert (usage.use_metadata, usage.multipart_from) == (False, 5)
    assert (usage.parallel_pieces, usage.piece_size) == (18, 12 * 2**20)


def test_defaults_are_those_of_the_reference_library() -> None:
    filled = filled_settings(None)
    assert filled.retries == StorageRetriesSettings(10, 100, 180_000)
    assert filled.minimum_size_for_multipart_upload == 100 * 2**20
    usage = Usage.of(S3Access(network_stream_timeout_seconds=7), None)
    assert (usage.timeouts.read, usage.timeouts.attempt) == (7, None)
    assert Usage.of(S3Access(network_stream_timeout_seconds=0), None).timeouts.read is None


def test_parts_of_an_upload_are_as_large_as_s3_wants_them() -> None:
    usage = Usage.of(S3Access(), None)
    assert usage.part_size(10**9) == 12 * 2**20
    assert usage.part_size(10**12) == 10**8


@pytest.mark.parametrize(
    ("key", "role", "content_type"),
    [
        ("chunks/A", Role.CHUNK, None),
        ("manifests/A", Role.METADATA, None),
        ("snapshots/A", Role.METADATA, None),
        ("transactions/A", Role.METADATA, None),
        ("chunks", Role.OTHER, None),
        ("repo", Role.OTHER, None),
        ("overwritten/repo.1", Role.OTHER, None),
        ("refs/branch.main/ref.json", Role.OTHER, "application/json"),
        ("refs/tag.t/ref.json.deleted", Role.OTHER, None),
        ("config.yaml", Role.OTHER, "application/yaml"),
        ("overwritten/config.yaml.30708674822816.YDR2", Role.OTHER, None),
    ],
)
def test_keys_tell_class_and_type(key: str, role: Role, content_type: str | None) -> None:
    assert traits_of(key, b"") == Traits(role, content_type)


def test_random_values_are_in_range_and_differ() -> None:
    fractions = {random_fraction() for _ in range(100)}
    assert len(fractions) == 100
    assert all(0 <= fraction < 1 for fraction in fractions)
    assert len({random_uuid() for _ in range(100)}) == 100
    assert random_uuid()[14] == "4"


def test_the_library_does_without_the_clients_until_they_are_needed() -> None:
    code = (
        "import sys, icechunk_stream.storage as storage\n"
        "storage.s3_storage(bucket='b', prefix='p')\n"
        "print(sorted({'boto3', 'botocore', 'obstore'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_without_boto3_an_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "find_spec", lambda _: None)
    with pytest.raises(StorageError, match=r"pip install 'icechunk-stream\[s3\]'") as caught:
        S3Storage("bucket", "p").get("chunks/A")
    assert caught.value.kind == ErrorKind.STORAGE_CONFIG


def test_without_obstore_boto3_does_everything(
    monkeypatch: pytest.MonkeyPatch, versitygw: S3Server, versitygw_bucket: str
) -> None:
    monkeypatch.setattr(s3_clients, "is_installed", lambda _: False)
    storage = storage_on(versitygw, versitygw_bucket)
    storage.put("chunks/A", b"0")
    assert storage.get("chunks/A") == b"0"
    monkeypatch.setattr(s3_obstore, "native", missing)
    asked = storage_on(versitygw, versitygw_bucket, bulk="obstore")
    with pytest.raises(StorageError, match="no obstore"):
        asked.get("chunks/A")


def missing() -> None:
    raise StorageError("no obstore")
