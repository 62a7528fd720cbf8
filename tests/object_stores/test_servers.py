"""The servers that other tests talk to do start, answer and stop."""

from pathlib import Path

import psutil
import pytest

from scripts import servers as tools
from tests.object_stores import servers
from tests.object_stores.buckets import s3_client
from tests.object_stores.servers import S3Server, ServerError, Toxiproxy


def test_versitygw_decides_conditional_writes(versitygw: S3Server, versitygw_bucket: str) -> None:
    check_conditions(versitygw, versitygw_bucket)


def test_moto_decides_conditional_writes(moto: S3Server, moto_bucket: str) -> None:
    check_conditions(moto, moto_bucket)


def check_conditions(server: S3Server, bucket: str) -> None:
    client = s3_client(server)
    place = {"Bucket": bucket, "Key": "a/b"}
    made = client.put_object(**place, Body=b"one", IfNoneMatch="*")
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        client.put_object(**place, Body=b"two", IfNoneMatch="*")
    client.put_object(**place, Body=b"two", IfMatch=made["ETag"])
    with pytest.raises(client.exceptions.ClientError, match="PreconditionFailed"):
        client.put_object(**place, Body=b"three", IfMatch=made["ETag"])
    assert client.get_object(**place)["Body"].read() == b"two"
    client.close()


def test_azurite_makes_containers(azure_container: str) -> None:
    assert azure_container.startswith("container-")


def test_toxiproxy_forwards_and_delays(
    versitygw: S3Server, versitygw_bucket: str, toxiproxy: Toxiproxy
) -> None:
    address = toxiproxy.forward("slow", versitygw.endpoint.removeprefix("http://"))
    toxiproxy.add_toxic("slow", "latency", "downstream", latency=20)
    through = S3Server(f"http://{address}", versitygw.access_key_id, versitygw.secret_access_key)
    client = s3_client(through)
    assert versitygw_bucket in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
    client.close()
    toxiproxy.remove("slow")


def test_a_stopped_server_leaves_no_process(tmp_path: Path) -> None:
    with servers.toxiproxy(tmp_path):
        assert started_here("toxiproxy")
    assert not started_here("toxiproxy", tmp_path)


def started_here(name: str, folder: Path | None = None) -> list[str]:
    children = psutil.Process().children(recursive=True)
    return [
        child.name()
        for child in children
        if name in " ".join(child.cmdline()) and folder in {None, Path(child.cwd())}
    ]


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    def command(port: int) -> list[str]:
        return ["/bin/sh", "-c", f"echo no room on {port} >&2; exit 3"]

    with (
        pytest.raises(ServerError, match=r"broken did not start[^$]*no room on"),
        servers.running("broken", command, {}, tmp_path),
    ):
        pass


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.InstallError, match="'go' is not on PATH: install Go from"):
        tools.installed(tools.TOXIPROXY)
    assert not tools.TOXIPROXY.path.exists()


def test_a_failed_installation_says_what_failed_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def build(folder: Path) -> None:
        (folder / "half").touch()
        tools.run(["/bin/sh", "-c", "echo no such version >&2; exit 1"], {})

    tool = tools.Tool("made-up", "1.0", "program", build)
    with pytest.raises(tools.InstallError, match="no such version"):
        tools.installed(tool)
    assert [path.name for path in tools.cache_folder().iterdir()] == ["made-up.lock"]
