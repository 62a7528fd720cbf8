"""A real Kafka broker in one process, on free loopback ports."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from scripts.maven import KAFKA_BROKER
from scripts.servers import installed, needed
from tests.object_stores.servers import (
    HOST,
    PORT_TRIES,
    START_SECONDS,
    ServerError,
    free_port,
    listens,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PARTITIONS = 4
CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
# Topics are made by their first record; a single node keeps all there is to keep.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A broker that listens at ``address``, and makes topics of four partitions."""

    address: str

    def send(self, topic: str, records: Mapping[int, int]) -> None:
        """Keys with their values, as texts; the broker has them when this returns."""
        lines = [f"{key}\t{value}\n" for key, value in records.items()]
        options = ["--property=parse.key=true", "--producer-property=enable.idempotence=true"]
        patience = ["--request-timeout-ms", "30000"]
        target = ["--bootstrap-server", self.address, "--topic", topic]
        program = "org.apache.kafka.tools.ConsoleProducer"
        run(java(program, *target, *options, *patience), "".join(lines))


@contextmanager
def kafka_broker(folder: Path) -> Iterator[KafkaBroker]:
    """A broker that keeps its data in a folder; it ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    process, port = _start(folder)
    try:
        yield KafkaBroker(f"{HOST}:{port}")
    finally:
        stop(process)


def java(program: str, *arguments: str) -> list[str]:
    jars = f"{installed(KAFKA_BROKER).parent}/*"
    heap = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    found = needed("java", "Java 17 (Debian package default-jre-headless)")
    return [found, *heap, "-cp", jars, program, *arguments]


def run(command: list[str], given: str = "") -> None:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _start(folder: Path) -> tuple[psutil.Popen, int]:
    log = folder / "broker.log"
    for number in range(PORT_TRIES):
        port = free_port()
        settings = _settings(folder / f"broker-{number}", port)
        run(java("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)))
        with log.open("ab") as output:
            process = psutil.Popen(
                java("kafka.Kafka", str(settings)),
                env={"PATH": os.environ["PATH"], "HOME": str(folder)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        if _became_ready(process, port):
            return process, port
        stop(process)
    raise ServerError(f"the broker did not start; it said:\n{log.read_text()[-2000:]}")


def _settings(folder: Path, port: int) -> Path:
    """The file that a broker of its own folder is started with."""
    controller = free_port()
    places = {
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(folder),
    }
    folder.mkdir()
    path = folder.with_suffix(".properties")
    path.write_text("".join(f"{name}={value}\n" for name, value in (SETTINGS | places).items()))
    return path


def _became_ready(process: psutil.Popen, port: int) -> bool:
    """Wait until this process listens; it answers once it is ready."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if listens(process, port):
            return True
        time.sleep(0.05)
    return False
