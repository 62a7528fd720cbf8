"""The package without the packages of its extras."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OPTIONAL = ("obstore", "boto3", "botocore")

OPEN_AZURE = """
storage = icechunk_stream.azure_storage(
    account="account", container="container", prefix="p", anonymous=True)
storage.get("repo")
"""
OPEN_S3 = """
storage = icechunk_stream.s3_storage(bucket="bucket", prefix="p", region="r", anonymous=True)
storage.get("repo")
"""


def run_without(packages: tuple[str, ...], folder: Path, code: str) -> str:
    """What a program says that finds all installed packages but these."""
    installed = Path(sysconfig.get_path("purelib"))
    for item in installed.iterdir():
        if not item.name.startswith(packages):
            (folder / item.name).symlink_to(item)
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import icechunk_stream\n{code}"],
        env={"PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr.strip().rpartition("\n")[2]


def test_the_package_is_imported_and_reads_local_files(tmp_path: Path) -> None:
    code = """
import sys
import icechunk_stream.storage.azure, icechunk_stream.storage.gcs, icechunk_stream.storage.http
storage = icechunk_stream.in_memory_storage()
storage.put("a", b"1")
print(storage.get("a"), [name for name in ("obstore", "boto3") if name in sys.modules])
"""
    assert run_without(OPTIONAL, tmp_path, code) == "b'1' []\n"


@pytest.mark.parametrize(
    ("code", "package", "extra"), [(OPEN_AZURE, "obstore", "cloud"), (OPEN_S3, "boto3", "s3")]
)
def test_what_is_missing_is_named_with_its_extra(
    tmp_path: Path, code: str, package: str, extra: str
) -> None:
    said = run_without(OPTIONAL, tmp_path, code)
    assert f"needs the package {package}, which is not installed" in said
    assert f"pip install 'icechunk-stream[{extra}]'" in said
