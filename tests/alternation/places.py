"""One repository in a local folder, opened by each library."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import icechunk_stream
from tests.alternation.edits import VIRTUAL_BYTES
from tests.oracle.libraries import REFERENCE

OURS, THEIRS = "ours", "reference"
LIBRARIES: dict[str, ModuleType] = {OURS: icechunk_stream, THEIRS: REFERENCE}


@dataclass(frozen=True)
class Settings:
    """What of a configuration matters here; ``split`` is the size of cells on the first axis."""

    threshold: int = 512
    split: int | None = None
    updates_per_file: int | None = None


@dataclass
class Place:
    """``handles`` are kept over many steps, so that they know old versions of everything."""

    folder: Path
    handles: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def below(cls, folder: Path) -> Place:
        files = folder / "files"
        files.mkdir()
        (files / "virtual.bin").write_bytes(VIRTUAL_BYTES)
        return cls(folder)

    @property
    def location(self) -> str:
        return str(self.folder / "repository")

    @property
    def prefix(self) -> str:
        return f"file://{self.folder}/files/"

    @property
    def virtual_file(self) -> str:
        return self.prefix + "virtual.bin"

    def create(self, library: str, spec_version: int, settings: Settings) -> None:
        ic = LIBRARIES[library]
        config = ic.RepositoryConfig.default()
        store = ic.local_filesystem_store(f"{self.folder}/files")
        config.set_virtual_chunk_container(ic.VirtualChunkContainer(self.prefix, store))
        apply_settings(ic, config, settings)
        storage = self.storage(library)
        more = {"spec_version": spec_version} if hasattr(ic.Repository, "ops_log") else {}
        ic.Repository.create(storage, config, **more)
        self.reopen()

    def fresh(self, library: str) -> Any:
        ic = LIBRARIES[library]
        access = getattr(ic.credentials, "LocalFileSystemAccess", None)
        granted = ic.containers_credentials({self.prefix: access})
        storage = self.storage(library)
        return ic.Repository.open(storage, authorize_virtual_chunk_access=granted)

    def storage(self, library: str) -> Any:
        ic = LIBRARIES[library]
        if ic is icechunk_stream:  # as the reference does, for the sake of speed
            return icechunk_stream.local_filesystem_storage(self.location, durability="os")
        return ic.local_filesystem_storage(self.location)

    def reopen(self) -> None:
        self.handles = {library: self.fresh(library) for library in LIBRARIES}

    def repository(self, library: str, fresh: bool) -> Any:
        return self.fresh(library) if fresh else self.handles[library]


def apply_settings(ic: Any, config: Any, settings: Settings) -> None:
    config.inline_chunk_threshold_bytes = settings.threshold
    config.manifest = ic.ManifestConfig(splitting=_splitting(ic, settings.split))
    if settings.updates_per_file is not None:
        config.num_updates_per_repo_info_file = settings.updates_per_file


def _splitting(ic: Any, size: int | None) -> Any:
    if size is None:
        return None
    condition, dimension = ic.ManifestSplitCondition, ic.ManifestSplitDimCondition
    return ic.ManifestSplittingConfig.from_dict(
        {
            condition.path_matches("a"): {
                dimension.DimensionName("x"): size,
                dimension.Axis(1): size + 1,
            },
            condition.AnyArray(): {dimension.Axis(0): size},
        }
    )
