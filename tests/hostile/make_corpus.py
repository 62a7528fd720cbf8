"""Writes the small objects that the hostile tests start from: ``python make_corpus.py FOLDER``.

The objects are kept in the repository, so that a seed names the same mutant on every machine.
Needs icechunk 2.3.0. Those named ``old`` are test data of the icechunk project (Apache-2.0):
releases before 2.3 wrote frames that do not state their content size.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import icechunk
import numpy as np
import zarr

BUCKET = "s3://bucket/archive/"


def main(folder: Path) -> None:
    for spec_version in (1, 2):
        with TemporaryDirectory() as place:
            root = Path(place)
            ids = _make(root, spec_version)
            _keep(root, folder, f"v{spec_version}", ids)


def _make(root: Path, spec_version: int) -> list[str]:
    config = icechunk.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 12
    store = icechunk.s3_store(region="us-east-1")
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(BUCKET, store))
    config.manifest = icechunk.ManifestConfig(
        splitting=icechunk.ManifestSplittingConfig.from_dict(
            {
                icechunk.ManifestSplitCondition.name_matches("grid"): {
                    icechunk.ManifestSplitDimCondition.Axis(0): 2
                }
            }
        ),
        virtual_chunk_location_compression=(
            icechunk.ManifestVirtualChunkLocationCompressionConfig(min_num_chunks=20)
        ),
    )
    repository = icechunk.Repository.create(
        icechunk.local_filesystem_storage(str(root)), config, spec_version=spec_version
    )
    ids = [_first(repository), _second(repository)]
    if spec_version > 1:
        ids.append(_moves(repository))
        _history(repository, ids)
    return ids


def _first(repository: icechunk.Repository) -> Any:
    session = repository.writable_session("main")
    root = zarr.group(store=session.store, attributes={"title": "é", "n": [1, 2.5, None, True]})
    array(root, "grid", (4, 5), (1, 2), dimension_names=("x", None))[:] = np.arange(20).reshape(
        4, 5
    )
    array(root, "point", (), ())[...] = 7
    array(root, "empty", (0, 3), (1, 2))
    group = root.create_group("deep/er", attributes={})
    array(group, "native", (12,), (4,))[:] = 1
    mixed = array(root, "mixed", (32,), (4,))
    mixed[24:28] = 5
    _virtual(session.store, "/mixed", 6)
    array(root, "packed", (24,), (1,))
    _virtual(session.store, "/packed", 24)
    return session.commit("first", metadata={"a": [1, -2, 3.5, "x", None], "b": {"c": True}})


def array(group: zarr.Group, name: str, shape: Any, chunks: Any, **more: Any) -> zarr.Array[Any]:
    return group.create_array(
        name, shape=shape, chunks=chunks, dtype="i4", compressors=None, fill_value=-1, **more
    )


def _virtual(store: icechunk.IcechunkStore, path: str, count: int) -> None:
    checksums = (None, "etag-of-it", "\u00fcnquoted")
    specs = [
        icechunk.VirtualChunkSpec(
            [i], f"{BUCKET}file-{i // 3}.nc", 8 * i, 4, etag_checksum=checksums[i % 3]
        )
        for i in range(count)
    ]
    store.set_virtual_refs(path, specs)


def _second(repository: icechunk.Repository) -> Any:
    session = repository.writable_session("main")
    root = zarr.open_group(session.store)
    grid: Any = root["grid"]
    grid[0, 0] = 99
    grid.resize((3, 5))
    root.attrs["title"] = "second"
    del root["empty"]
    del root["deep/er"]
    root.create_group("new")
    return session.commit("second")


def _moves(repository: icechunk.Repository) -> Any:
    session = repository.rearrange_session("main")
    session.move("/new", "/newer")
    session.move("/mixed", "/newer/mixed")
    return session.commit("moves")


def _history(repository: icechunk.Repository, ids: list[str]) -> None:
    """One entry of the operations log of every kind, or nearly."""
    repository.create_tag("t1", ids[0])
    repository.create_tag("é/2", ids[1])
    repository.delete_tag("t1")
    repository.create_branch("dev", ids[0])
    repository.reset_branch("dev", ids[1])
    repository.create_branch("gone", ids[0])
    repository.delete_branch("gone")
    repository.set_metadata({"owner": "nobody", "limits": [1, 2, 3]})
    repository.set_feature_flag("create_tag", setting=False)
    repository.set_feature_flag("delete_tag", setting=True)
    session = repository.writable_session("dev")
    zarr.open_group(session.store).attrs["k"] = 1
    session.flush("detached")
    session = repository.writable_session("dev")
    zarr.open_group(session.store).attrs["k"] = 2
    session.commit("to be amended")
    session = repository.writable_session("dev")
    zarr.open_group(session.store).attrs["k"] = 3
    last = session.amend("amended")
    repository.save_config()
    snapshot = next(iter(repository.ancestry(snapshot_id=last)))
    repository.expire_snapshots(snapshot.written_at)
    repository.garbage_collect(datetime(2000, 1, 1, tzinfo=UTC))
    repository.set_status(
        icechunk.RepoStatus(icechunk.RepoAvailability.read_only, limited_availability_reason="why")
    )


def _keep(root: Path, folder: Path, name: str, ids: list[str]) -> None:
    for number, id in enumerate(ids):
        for kind, directory in (("snapshot", "snapshots"), ("log", "transactions")):
            source = root / directory / id
            if source.exists():
                (folder / f"{kind}-{name}-{number}").write_bytes(source.read_bytes())
    for number, source in enumerate(_distinct(root / "manifests")):
        (folder / f"manifest-{name}-{number}").write_bytes(source.read_bytes())
    if (root / "repo").exists():
        (folder / f"repo-{name}").write_bytes((root / "repo").read_bytes())


def _distinct(manifests: Path) -> list[Path]:
    """Manifests of different sizes: those of one size hold the same kinds of references."""
    return list({path.stat().st_size: path for path in sorted(manifests.iterdir())}.values())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
