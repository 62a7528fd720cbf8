"""An object store's client alone: small writes, ranged reads and large objects, near and far."""

from __future__ import annotations

import random
import resource
import shutil
import statistics
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.harness import Report, arguments, say
from bench.s3_clients import CLIENTS, Client, Places, isolate, memory_folder
from icechunk_stream.testing.http_proxy import HttpProxy
from tests.object_stores import servers
from tests.object_stores.buckets import create_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.object_stores.servers import S3Server

PEER = (
    "icechunk through its store, with its default configuration: asyncio.gather over all objects"
    " of a case. Ours: put_many and get_many of a storage with its defaults, with obstore or with"
    " boto3 alone. Plain boto3: threads as many as ours, a pool of as many connections, retries"
    " off. All clients take turns in one process, in another order each round; the server, which"
    " has its objects in memory, and the proxy are other processes on the same cores; client CPU"
    " is that of the client's process"
)
LATENCY_MS = 20
TARGET = 0.9
SMALL, RANGE, LARGE = 64 * 1024, 4096, 8 * 2**20
BUCKET = "bench"


@dataclass(frozen=True, slots=True)
class Work:
    """``run`` is timed; ``prepare`` and what a round leaves behind are not."""

    name: str
    run: Callable[[Client], int]
    rounds: int
    prepare: Callable[[Client], None] = lambda _: None


@dataclass(slots=True)
class Spent:
    """Seconds and CPU seconds of each round of a client."""

    objects: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return self.objects / min(self.seconds)

    @property
    def median(self) -> float:
        return self.objects / statistics.median(self.seconds)


Outcome = dict[str, Spent]


def works(*, quick: bool) -> list[Work]:
    small, large = (200, 16) if quick else (1000, 128)
    rounds = 2 if quick else 6
    return [
        Work(f"{small:,} PUTs of 64 kB", lambda c: c.put(small, SMALL), rounds),
        Work(
            f"{small:,} GETs of 4 kB out of 64 kB",
            lambda c: c.get(small, SMALL, RANGE),
            rounds,
            lambda c: c.keep(small, SMALL),
        ),
        Work(f"{large * 8:,} MB: PUTs of 8 MB", lambda c: c.put(large, LARGE), rounds),
        Work(
            f"{large * 8:,} MB: GETs of 8 MB",
            lambda c: c.get(large, LARGE, LARGE),
            rounds,
            lambda c: c.keep(large, LARGE),
        ),
    ]


def measure(work: Work, server: S3Server, objects: Path) -> Outcome:
    """Let the clients take turns, each warmed up by a first round that does not count.

    Each round has another order: what one client leaves to the server slows the next.
    """
    clients = [make(Places(server, BUCKET)) for make in CLIENTS]
    found = {client.name: Spent() for client in clients}
    for client in clients:
        work.prepare(client)
        _turn(work, client, Spent())
        forget_new(objects, client)
    shuffled = random.Random(0)
    for _ in range(work.rounds):
        for client in shuffled.sample(clients, len(clients)):
            _turn(work, client, found[client.name])
            forget_new(objects, client)
    forget_all(objects)
    return found


def _turn(work: Work, client: Client, spent: Spent) -> None:
    cpu, began = _cpu(), perf_counter()
    spent.objects = work.run(client)
    spent.seconds.append(perf_counter() - began)
    spent.cpu.append(_cpu() - cpu)


def forget_new(objects: Path, client: Client) -> None:
    """Drop what a round wrote; what reads need stays."""
    shutil.rmtree(objects / BUCKET / client.new_folder, ignore_errors=True)


def forget_all(objects: Path) -> None:
    for folder in (objects / BUCKET).iterdir():
        shutil.rmtree(folder)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def table(rows: list[tuple[str, str, Outcome]]) -> Iterator[str]:
    yield (
        "| what | server | client | objects/s: best, median | client CPU s | best, median"
        " over icechunk's | over plain boto3's | target |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for what, where, outcome in rows:
        peer, plain = outcome["icechunk"], outcome["plain boto3"]
        for name, spent in outcome.items():
            target = f"{TARGET:g} of icechunk" if name == "ours, obstore" else ""
            yield (
                f"| {what} | {where} | {name} | {spent.best:,.0f}, {spent.median:,.0f}"
                f" | {statistics.median(spent.cpu):.2f}"
                f" | **{spent.best / peer.best:.2f}**, {spent.median / peer.median:.2f}"
                f" | {spent.best / plain.best:.2f} | {target} |"
            )


def round_trips(server: S3Server) -> Iterator[str]:
    """What one small write costs on an open connection."""
    with HttpProxy(server.endpoint) as proxy:
        behind = replace(server, endpoint=proxy.endpoint)
        for make in CLIENTS:
            client = make(Places(behind, BUCKET))
            client.put(1, SMALL)
            proxy.forget()
            client.put(1, SMALL)
            yield f"{client.name}: {len(proxy.requests)} request, {proxy.round_trips} round trips"


@contextmanager
def near_and_far(folder: Path) -> Iterator[dict[str, S3Server]]:
    """The server itself, and the same one behind a proxy that delays its answers."""
    with servers.versitygw(folder) as server, servers.toxiproxy(folder) as proxy:
        create_bucket(server, BUCKET)
        address = proxy.forward("far", urlsplit(server.endpoint).netloc)
        proxy.add_toxic("far", "latency", "downstream", latency=LATENCY_MS)
        yield {
            "direct": server,
            f"{LATENCY_MS} ms": replace(server, endpoint=f"http://{address}"),
        }


def main() -> None:
    options = arguments(__doc__)
    report = Report("storage", PEER, options.quick)
    isolate()
    with memory_folder() as folder:
        rows: list[tuple[str, str, Outcome]] = []
        with near_and_far(folder) as reached:
            for where, server in reached.items():
                for work in works(quick=options.quick):
                    say(f"{where}: {work.name}")
                    outcome = measure(work, server, folder / "objects")
                    rows.append((work.name, where, outcome))
                    say("\n".join(list(table(rows[-1:]))[2:]))
            trips = "; ".join(round_trips(reached["direct"]))
            report.note(f"One small PUT on an open connection. {trips}.")
    report.lines.extend(table(rows))
    report.write()


if __name__ == "__main__":
    main()
