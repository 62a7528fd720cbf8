"""Where a repository is, as users write it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from icechunk_stream.config.redact import redact_url
from icechunk_stream.errors import InvalidInputError
from icechunk_stream.storage import Storage, local_filesystem_storage, s3_storage


def storage_of(place: Storage | str) -> Storage:
    """The storage of a path or URL; credentials are the ambient ones."""
    if isinstance(place, Storage):
        return place
    url = urlsplit(place)
    match url.scheme:
        case "":
            return local_filesystem_storage(place)
        case "file" if url.netloc in {"", "localhost"}:
            return local_filesystem_storage(unquote(url.path))
        case "s3" | "s3a":
            return s3_storage(bucket=url.netloc, prefix=url.path.strip("/"), from_env=True)
        case _:
            message = (
                f"no storage is known for {redact_url(place)!r}: give a path, file:// or s3://, or"
                " a storage such as azure_storage(...)"
            )
            raise InvalidInputError(message)
