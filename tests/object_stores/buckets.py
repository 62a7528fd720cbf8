"""Buckets and containers, made with requests of our own or boto3's, never with the code tested."""

import hashlib
import hmac
import inspect
import urllib.request
from base64 import b64decode, b64encode
from email.utils import formatdate
from typing import Any
from urllib.parse import urlencode, urlsplit

import boto3
from botocore.config import Config

from tests.object_stores.servers import AzureServer, S3Server
from tests.secret_marker import marked
from tests.secret_watch import unwatched

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Unwatched:
    """A client of the tests' own: what botocore logs of its requests is no business of ours."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return unwatched()(found) if inspect.ismethod(found) else found


def s3_client(server: S3Server) -> Any:
    """A plain boto3 client with the server's own access key."""
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        region_name=server.region,
        config=Config(s3={"addressing_style": "path"}, proxies={}),
    )
    return Unwatched(client)


def create_bucket(server: S3Server, name: str) -> str:
    client = s3_client(server)
    client.create_bucket(Bucket=name)
    client.close()
    return name


def create_container(server: AzureServer, name: str) -> str:
    """Make a container by a request with the account's key."""
    url = f"{server.endpoint}/{name}?restype=container"
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    headers["Authorization"] = _shared_key(server, url, headers)
    request = urllib.request.Request(url, data=b"", headers=headers, method="PUT")
    # urllib would add a type, which would have to be signed.
    request.add_header("Content-Type", "")
    with _opener.open(request, timeout=30) as answer:
        assert answer.status == 201
    return name


def _shared_key(server: AzureServer, url: str, headers: dict[str, str]) -> str:
    parts = urlsplit(url)
    canonical_headers = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    resource = f"/{server.account}{parts.path}\nrestype:container"
    to_sign = "PUT" + "\n" * 12 + canonical_headers + resource
    digest = hmac.digest(b64decode(server.access_key), to_sign.encode(), hashlib.sha256)
    return f"SharedKey {server.account}:{b64encode(digest).decode()}"


def account_signature(server: AzureServer) -> str:
    """A shared access signature of the whole account for a day of the far future."""
    fields = {
        "sv": "2020-12-06",
        "ss": "b",
        "srt": "sco",
        "sp": "rwdlac",
        "st": "",
        "se": "2099-01-01T00:00:00Z",
        "sip": "",
        "spr": "https,http",
    }
    order = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv")
    to_sign = "".join(f"{text}\n" for text in (server.account, *(fields[n] for n in order), ""))
    digest = hmac.digest(b64decode(server.access_key), to_sign.encode(), hashlib.sha256)
    signed = {name: text for name, text in fields.items() if text}
    signature = b64encode(digest).decode()
    marked.add(signature)
    return urlencode(signed | {"sig": signature})
