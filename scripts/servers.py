"""Install the servers that tests talk to, into the user's cache: ``make servers``.

Each version has a folder of its own, which appears when it is complete.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class InstallError(Exception):
    """A server cannot be installed here; the message says what to do."""


@dataclass(frozen=True)
class Tool:
    """A server in one version: the file to run below its folder, and what puts it there."""

    name: str
    version: str
    file: str
    build: Callable[[Path], None]

    @property
    def folder(self) -> Path:
        return cache_folder() / f"{self.name}-{self.version}"

    @property
    def path(self) -> Path:
        return self.folder / self.file


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "icechunk_stream" / "servers"


def go_package(package: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        # Without version control stamps the build needs no git.
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"}
        run([needed("go", "Go from https://go.dev/dl"), "install", package], environment)

    return build


def npm_package(package: str) -> Callable[[Path], None]:
    def build(folder: Path) -> None:
        needed("node", "Node.js from https://nodejs.org")
        npm = needed("npm", "npm, which comes with Node.js")
        options = ["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts"]
        run([npm, "install", *options, "--prefix", str(folder), package], dict(os.environ))

    return build


VERSITYGW = Tool(
    "versitygw",
    "1.8.0",
    "versitygw",
    go_package("github.com/versity/versitygw/cmd/versitygw@v1.8.0"),
)
TOXIPROXY = Tool(
    "toxiproxy",
    "2.5.0",
    "server",
    go_package("github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"),
)
AZURITE = Tool(
    "azurite",
    "3.37.0",
    "node_modules/azurite/dist/src/blob/main.js",
    npm_package("azurite@3.37.0"),
)
TOOLS = (VERSITYGW, TOXIPROXY, AZURITE)


def installed(tool: Tool) -> Path:
    """The file to run; the first caller installs it, others wait."""
    if not tool.path.exists():
        with locked(tool):
            if not tool.path.exists():
                install(tool)
    return tool.path


@contextmanager
def locked(tool: Tool) -> Iterator[None]:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / f"{tool.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(tool: Tool) -> None:
    print(f"installing {tool.name} {tool.version} into {tool.folder}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=cache_folder()) as parent:
        folder = Path(parent) / "made"
        folder.mkdir()
        tool.build(folder)
        if not (folder / tool.file).exists():
            raise InstallError(f"{tool.name} {tool.version} was installed without {tool.file}")
        shutil.rmtree(tool.folder, ignore_errors=True)
        folder.rename(tool.folder)


def needed(command: str, source: str) -> str:
    found = shutil.which(command)
    if found is None:
        raise InstallError(
            f"{command!r} is not on PATH: install {source}, then run 'make servers' again"
        )
    return found


def run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise InstallError(f"{' '.join(command)} failed with status {done.returncode}:\n{said}")


def install_all(tools: Iterable[Tool]) -> int:
    for tool in tools:
        try:
            print(installed(tool))
        except InstallError as error:
            print(f"make servers: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(install_all(TOOLS))
