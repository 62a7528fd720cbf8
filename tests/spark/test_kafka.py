"""A stream from a real Kafka broker, whose driver is killed and started again."""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import icechunk
import pytest
import xarray as xr

from tests.spark.driver_processes import module_process
from tests.spark.kafka_broker import PARTITIONS, KafkaBroker, kafka_broker
from tests.spark.kafka_driver import BATCH, TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psutil

pytestmark = pytest.mark.compat

FIRST, NEXT, LAST = range(800), range(800, 1_100), range(1_100, 1_500)
# The first swap makes the repository, the second stores how its arrays are split; then batches.
KILLED_AT = 5
PATIENCE = 300.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@contextmanager
def driver(folder: Path, *arguments: str) -> Iterator[psutil.Popen]:
    """A driver in a process of its own; it has ended after the block."""
    module = "tests.spark.kafka_driver"
    with module_process(folder, module, str(folder), *arguments) as process:
        yield process
        process.wait(PATIENCE)


def send(broker: KafkaBroker, ids: range) -> None:
    broker.send(TOPIC, {id: id * id for id in ids})


def said(folder: Path) -> str:
    """What the last driver said."""
    return (folder / "said").read_text()


def wait_for_mark(folder: Path, process: psutil.Popen) -> None:
    """Wait until a driver has written a batch."""
    until = time.monotonic() + PATIENCE
    while not list((folder / "marks").iterdir()):
        assert process.poll() is None, said(folder)
        assert time.monotonic() < until
        time.sleep(0.05)


def batches(folder: Path) -> list[int]:
    """The batch ids in the history, from the first to the last."""
    history = reference(folder).ancestry(branch="main")
    found = [each.metadata.get("icechunk_stream") for each in history]
    return [each["batch_id"] for each in found if each][::-1]


def reference(folder: Path) -> icechunk.Repository:
    storage = icechunk.local_filesystem_storage(str(folder / "repository"))
    return icechunk.Repository.open(storage)


def spark_batches(folder: Path, log: str) -> list[int]:
    """The batches that Spark planned ("offsets"), or knows to be written ("commits")."""
    names = [path.name for path in (folder / "checkpoint" / log).iterdir()]
    return sorted(int(name) for name in names if name.isdigit())


def read_partitions(folder: Path) -> set[str]:
    """The partitions that batches read."""
    *_, offsets = (folder / "checkpoint" / "offsets" / "0").read_text().splitlines()
    return set(json.loads(offsets)[TOPIC])


@pytest.mark.parametrize(
    ("when", "landed"),
    [("after", [0, 1, 2]), pytest.param("before", [0, 1], marks=pytest.mark.soak)],
)
def test_every_record_of_a_topic_is_there_once_though_the_driver_was_killed(
    broker: KafkaBroker, tmp_path: Path, when: str, landed: list[int]
) -> None:
    send(broker, FIRST)
    with driver(tmp_path, broker.address, when, str(KILLED_AT)) as killed:
        pass
    assert killed.returncode == -signal.SIGKILL, said(tmp_path)
    assert batches(tmp_path) == landed
    assert spark_batches(tmp_path, "offsets") == [0, 1, 2]
    assert spark_batches(tmp_path, "commits") == [0, 1]

    for mark in (tmp_path / "marks").iterdir():
        mark.unlink()
    with driver(tmp_path, broker.address, "never", "0") as restarted:
        send(broker, NEXT)
        wait_for_mark(tmp_path, restarted)
        send(broker, LAST)
        (tmp_path / "sent").touch()
    assert restarted.returncode == 0, said(tmp_path)

    store = reference(tmp_path).readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False).load()
    assert sorted(found["id"].values.tolist()) == list(range(LAST.stop))
    assert (found["value"] == found["id"] ** 2).all()
    assert batches(tmp_path) == spark_batches(tmp_path, "commits")
    assert len(batches(tmp_path)) >= LAST.stop // BATCH
    assert read_partitions(tmp_path) == set(map(str, range(PARTITIONS)))
