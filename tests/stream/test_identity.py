"""Files of Spark's checkpoints, as Spark 4.2 writes them, and damaged ones."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icechunk_stream.errors import CheckpointError, ErrorKind
from icechunk_stream.stream.identity import (
    BatchOffsets,
    is_local,
    read_local_text,
    read_offsets,
    read_query_id,
)

QUERY = "52292fe2-5557-4548-9509-de54eec467ae"
SETTINGS = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1795039691102,"conf":'
    '{"spark.sql.shuffle.partitions":"1","spark.sql.streaming.multipleWatermarkPolicy":"min"}}'
)
KAFKA = '{"obs":{"1":120,"0":97}}'
RATE = '{"offset":20,"timestamp":2000}'


def files(offsets: str, metadata: str = f'{{"id":"{QUERY}"}}') -> dict[str, str]:
    return {"s3://b/ck/metadata": metadata, "s3://b/ck/offsets/7": offsets}


def offsets_of(text: str) -> BatchOffsets:
    return read_offsets("s3://b/ck", 7, files(text).get)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with a percent sign in its name, which Spark leaves as it is."""
    folder = tmp_path / "ck%20 x"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    (folder / "offsets" / "7").write_text(f"v1\n{SETTINGS}\n{KAFKA}")
    return folder


@pytest.mark.parametrize("scheme", ["", "file:", "file://", "file://localhost", "FILE:"])
@pytest.mark.parametrize("end", ["", "/", "//"])
def test_a_local_checkpoint_is_read_by_path_and_by_url(
    checkpoint: Path, scheme: str, end: str
) -> None:
    location = f"{scheme}{checkpoint}{end}"

    assert read_query_id(location, read_local_text) == QUERY
    assert read_offsets(location, 7, read_local_text).lines == (KAFKA,)


def test_a_relative_path_is_read(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)

    assert read_query_id(checkpoint.name, read_local_text) == QUERY


def test_another_way_to_read_is_asked_for_the_files_below_the_location() -> None:
    assert read_query_id("s3://b/ck/", files("").get) == QUERY
    assert offsets_of(f"v1\n{SETTINGS}\n{RATE}\n-").lines == (RATE, "-")


def test_the_digest_is_that_of_the_sources_alone() -> None:
    later = SETTINGS.replace("1795039691102", "1795039999999").replace('"min"', '"max"')

    assert (
        offsets_of(f"v1\n{later}\n{KAFKA}").digest == offsets_of(f"v1\n{SETTINGS}\n{KAFKA}").digest
    )
    assert offsets_of(f"v1\n\n{KAFKA}").digest == offsets_of(f"v1\n{SETTINGS}\n{KAFKA}\n").digest


lines = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), min_size=1)


@given(lines, lines)
def test_digests_are_equal_only_for_equal_offsets(one: list[str], other: list[str]) -> None:
    found, second = BatchOffsets(tuple(one)), BatchOffsets(tuple(other))

    assert (found.digest == second.digest) is (one == other)
    assert found.digest == BatchOffsets(tuple(one)).digest


def test_the_digest_of_offsets_never_changes() -> None:
    expected = "sha256:cfa4aa52d6495"

    assert BatchOffsets((RATE,)).digest.startswith(expected)


@pytest.mark.parametrize("offset", ['{"logOffset":1}', '{"seqNum":7,"sourceVersion":1}'])
@pytest.mark.parametrize("version", ["v1\n{}\n{}", "v2\n{}\n0:{}"])
def test_a_place_in_the_checkpoints_own_log_is_told_apart_by_when_it_was_planned(
    version: str, offset: str
) -> None:
    later = SETTINGS.replace("1795039691102", "1795039999999")
    planned, again, anew = (version.format(at, offset) for at in (SETTINGS, SETTINGS, later))

    assert offsets_of(planned) == offsets_of(again)
    assert offsets_of(planned).planned_at == 1795039691102
    assert offsets_of(planned).lines == offsets_of(anew).lines
    assert offsets_of(planned).digest != offsets_of(anew).digest


@pytest.mark.parametrize("offset", [KAFKA, RATE, '{"seqNum":{"0":7}}', "7", "-"])
def test_the_clock_of_a_batch_is_not_kept_where_the_offsets_are_the_sources_own(
    offset: str,
) -> None:
    assert offsets_of(f"v1\n{SETTINGS}\n{offset}").planned_at is None


def test_sources_that_are_told_apart_by_name_come_in_any_order() -> None:
    one = offsets_of(f"v2\n{SETTINGS}\n1:{RATE}\n0:{KAFKA}")
    other = offsets_of(f"v2\n{SETTINGS}\n0:{KAFKA}\n1:{RATE}")

    assert one == other
    assert one.lines == (f"0:{KAFKA}", f"1:{RATE}")


def test_sources_that_are_told_apart_by_place_are_not_exchanged() -> None:
    one = offsets_of(f"v1\n{SETTINGS}\n{RATE}\n{KAFKA}")

    assert one.digest != offsets_of(f"v1\n{SETTINGS}\n{KAFKA}\n{RATE}").digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "its first line is ''"),
        ("{}", "its first line is '{}'"),
        ("v\n{}\n1", "its first line is 'v'"),
        (f"v1\n{SETTINGS}", "no line for any source"),
        ("v1", "no line for any source"),
        (f"v1\n{SETTINGS[:40]}\n1", "its JSON is not what Spark writes"),
        ("v1\n[]\n1", "its JSON is not what Spark writes"),
        ("v1\n" + "[" * 100_000 + "\n1", "nested deeper"),
        (f"v2\n{SETTINGS}\n{RATE[1:].replace(':', '')}", "a line of it names no source"),
        (f"v3\n{SETTINGS}\n1", "its format is v3"),
        ("v4", "its format is v4"),
    ],
)
def test_damaged_offsets_are_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(CheckpointError, match=r"^s3://b/ck/offsets/7: ") as caught:
        offsets_of(text)

    assert said in str(caught.value)
    assert caught.value.path == "s3://b/ck/offsets/7"
    assert caught.value.kind is ErrorKind.CHECKPOINT


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"id":1}', '{"id":null}', '{"id":""}', '{"id":" "}', '"x"', "\x00"],
)
def test_damaged_metadata_is_refused_by_name(text: str) -> None:
    with pytest.raises(CheckpointError, match=r"^s3://b/ck/metadata: .*a fresh one"):
        read_query_id("s3://b/ck", files("", text).get)


def test_a_query_id_of_any_length_is_not_believed() -> None:
    with pytest.raises(CheckpointError, match="it names the query"):
        read_query_id("s3://b/ck", files("", f'{{"id":"{"x" * 201}"}}').get)


def test_unknown_members_of_the_metadata_are_passed_over() -> None:
    assert read_query_id("s3://b/ck", files("", '{"id":"q","more":[1]}\n').get) == "q"


def test_missing_files_are_told_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/metadata: .*checkpointLocation"):
        read_query_id(str(tmp_path), read_local_text)
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/offsets/3: .*checkpointLocation"):
        read_offsets(str(tmp_path), 3, read_local_text)


def test_a_missing_local_file_is_none(checkpoint: Path) -> None:
    assert read_local_text(f"{checkpoint}/offsets/8") is None
    assert read_local_text(f"{checkpoint}/metadata/8") is None


@pytest.mark.parametrize(
    "location", ["s3://b/ck", "dbfs:/ck", "file://host/ck", "file:ck", "abfss://c@a.net/ck"]
)
def test_what_is_not_on_this_machine_is_refused(location: str) -> None:
    with pytest.raises(CheckpointError, match="no path of this machine"):
        read_local_text(location)


@pytest.mark.parametrize("location", ["/a/b", "a", "./a:b", "file:/a", "file:///a", "FILE:/a"])
def test_paths_and_file_urls_are_local(location: str) -> None:
    assert is_local(location)


@pytest.mark.parametrize("location", ["s3://b", "dbfs:/a", "hdfs:///a", "abfss://c@a.net/ck"])
def test_other_schemes_are_not_local(location: str) -> None:
    assert not is_local(location)


def test_what_is_no_text_file_is_refused(checkpoint: Path) -> None:
    (checkpoint / "metadata").write_bytes(b"\xff\xfe{")
    os.mkfifo(checkpoint / "fifo")

    with pytest.raises(CheckpointError, match="it is no text"):
        read_query_id(str(checkpoint), read_local_text)
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_local_text(str(checkpoint / "offsets"))
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_local_text(str(checkpoint / "fifo"))
    with pytest.raises(CheckpointError, match="null"):
        read_local_text("a\0b")


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "metadata").symlink_to(tmp_path / "metadata")

    with pytest.raises(CheckpointError, match="it cannot be read"):
        read_query_id(str(tmp_path), read_local_text)


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "metadata").open("wb") as file:
        file.truncate(2**40)

    with pytest.raises(CheckpointError, match="are read"):
        read_query_id(str(tmp_path), read_local_text)


def test_errors_show_no_credentials_and_survive_pickling() -> None:
    with pytest.raises(CheckpointError) as caught:
        read_query_id("s3://key:word@b/ck", files("").get)

    assert "word" not in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.path, copy.kind) == (
        str(caught.value),
        "s3://***@b/ck/metadata",
        ErrorKind.CHECKPOINT,
    )


@given(st.text())
def test_any_text_is_offsets_or_a_checkpoint_error(text: str) -> None:
    for content in (text, f"v1\n{text}", f"v2\n{SETTINGS}\n{text}"):
        found: BatchOffsets | CheckpointError
        try:
            found = offsets_of(content)
        except CheckpointError as error:
            found = error
        match found:
            case BatchOffsets(lines=lines):
                assert lines
            case CheckpointError(path=path):
                assert path == "s3://b/ck/offsets/7"
