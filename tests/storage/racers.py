"""Many processes at work on one local storage: ``python -m tests.storage.racers NAME PATH MODE``.

It runs apart from pytest so that it forks from a process with a single thread.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from icechunk_stream.storage import (
    Durability,
    Fetched,
    LocalStorage,
    LostRace,
    MemoryStorage,
    ReadRequest,
)
from icechunk_stream.testing.storage_steps import create, fetch, increment, update

PROCESSES = 8
PAYLOADS = (b"A" * 2_000_000, b"B" * 2_500_000)
ROOT = Path(__file__).parents[2]


def run(name: str, path: Path, durability: str) -> Any:
    """Run a scenario in a process of its own, and give its findings."""
    command = [sys.executable, "-m", "tests.storage.racers", name, str(path), durability]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def forked(act: Callable[[], Any]) -> tuple[int, int]:
    """Start a child; its id, and the pipe that its result comes through."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    try:
        with os.fdopen(writer, "w") as pipe:
            json.dump(act(), pipe)
        os._exit(0)
    finally:
        os._exit(1)


def in_processes(acts: list[Callable[[], Any]]) -> list[Any]:
    children = [forked(act) for act in acts]
    results = [json.loads(Path(f"/dev/fd/{reader}").read_text()) for _, reader in children]
    assert [os.waitpid(child, 0)[1] for child, _ in children] == [0] * len(acts)
    return results


def increments(storage: LocalStorage) -> Any:
    create(storage, "repo", b"0")

    def fifty() -> list[int]:
        return [increment(storage, "repo") for _ in range(50)]

    return in_processes([fifty] * PROCESSES), int(storage.get("repo"))


def creations(storage: LocalStorage) -> Any:
    barrier = multiprocessing.get_context("fork").Barrier(PROCESSES)

    def race(me: int) -> list[bool]:
        return [won(f"refs/tag.{number}/ref.json", me) for number in range(100)]

    def won(key: str, me: int) -> bool:
        barrier.wait(60)
        return storage.put_if(key, str(me).encode(), None) != LostRace()

    wins = in_processes([partial(race, me) for me in range(PROCESSES)])
    return wins, [int(storage.get(f"refs/tag.{number}/ref.json")) for number in range(100)]


def replacements(storage: LocalStorage) -> Any:
    """One updates, one deletes, one creates: what is left, and whether the creator won."""
    rounds = 150
    barrier = multiprocessing.get_context("fork").Barrier(3)
    names = [f"refs/branch.{number}/ref.json" for number in range(rounds)]
    versions = {key: create(storage, key, b"first") for key in names}

    def race(act: Callable[[str], bool]) -> list[bool]:
        outcomes = []
        for key in names:
            barrier.wait(60)
            outcomes.append(act(key))
        return outcomes

    updates, deletes, creates = in_processes(
        [
            lambda: race(lambda key: storage.put_if(key, b"updated", versions[key]) != LostRace()),
            lambda: race(lambda key: storage.delete_many([key]) == []),
            lambda: race(lambda key: storage.put_if(key, b"created", None) != LostRace()),
        ]
    )
    left = [storage.read(key) for key in names]
    texts = [found.data.decode() if isinstance(found, Fetched) else "" for found in left]
    return updates, deletes, creates, texts


def kills(storage: LocalStorage) -> Any:
    """Kill writers at many moments; what the objects were each time, and what was left behind."""
    for key in ("repo", "snapshots/A"):
        create(storage, key, PAYLOADS[0])
    states = [after_a_kill(storage, number) for number in range(35)]
    return states, len(staged_files(storage.path)), [info.key for info in storage.list()]


def after_a_kill(storage: LocalStorage, number: int) -> list[str]:
    """Let a writer write some objects, kill it soon after, and look."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        write_for_ever(storage, writer)
    os.read(reader, 1)
    for _ in range(number % 4):
        os.read(reader, 1)
    if number % 3:
        wait_for_a_staged_file(storage.path)
    else:
        time.sleep(0.0002 * number)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    found = fetch(storage, "repo")
    state = [seen(found.data), seen(storage.get("snapshots/A"))]
    # The dead writer's lock is free, and what it left in its way does no harm.
    update(storage, "repo", PAYLOADS[0], found.version)
    return state


def wait_for_a_staged_file(root: Path) -> None:
    """Until a writer is in the middle of a write."""
    before = staged_files(root)
    while staged_files(root) <= before:
        pass


def staged_files(root: Path) -> set[str]:
    folders = (root, root / "snapshots")
    return {name for folder in folders for name in os.listdir(folder) if name.startswith("tmp#")}


def write_for_ever(storage: LocalStorage, progress: int) -> None:
    while True:
        for payload in reversed(PAYLOADS):
            update(storage, "repo", payload, fetch(storage, "repo").version)
            os.write(progress, b".")
            storage.put("snapshots/A", payload)
            os.write(progress, b".")


def seen(data: bytes) -> str:
    return {PAYLOADS[0]: "A", PAYLOADS[1]: "B"}.get(data, f"torn: {len(data)} bytes")


def fork_then_use(storage: LocalStorage) -> Any:
    """A child of a process whose pool is busy uses pool, batches and swaps of its own."""
    storage.put_many([(f"chunks/{number}", b"%d" % number) for number in range(50)])
    requests = [ReadRequest(f"chunks/{number}") for number in range(50)]
    slow = [storage.executor.submit(time.sleep, 1) for _ in range(storage.concurrency)]

    def use() -> list[Any]:
        data = storage.get_many(requests)
        version = create(storage, "repo", b"child")
        storage.put_many([("chunks/x", b"x"), ("chunks/y", b"y")])
        submitted = storage.submit("chunks/7").result(10)
        return [
            len(data),
            version.token == fetch(storage, "repo").version.token,
            submitted.decode(),
        ]

    found = in_processes([use])
    return found, all(not task.cancelled() for task in slow), storage.get("repo").decode()


def memory_forked_amid_a_write(_: LocalStorage) -> Any:
    """A child that was forked while another thread held the lock writes on, to its own copy."""
    storage = MemoryStorage()
    storage.put("a", b"parent")
    held, done = Event(), Event()

    def hold() -> None:
        with storage._lock.value:
            held.set()
            done.wait(60)

    thread = Thread(target=hold)
    thread.start()
    held.wait(60)

    def use() -> str:
        storage.put("a", b"child")
        return storage.get("a").decode()

    found = in_processes([use])
    done.set()
    thread.join()
    return found, storage.get("a").decode()


def main(name: str, path: str, durability: Durability) -> None:
    scenarios: dict[str, Callable[[LocalStorage], Any]] = {
        "increments": increments,
        "creations": creations,
        "replacements": replacements,
        "kills": kills,
        "fork_then_use": fork_then_use,
        "memory_forked_amid_a_write": memory_forked_amid_a_write,
    }
    print(json.dumps(scenarios[name](LocalStorage(path, durability=durability))))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # the third is a durability
