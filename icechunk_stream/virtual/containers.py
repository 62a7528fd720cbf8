"""Which container a location outside of the repository belongs to, and whether it may be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from icechunk_stream.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from icechunk_stream.config import VirtualChunkContainer
    from icechunk_stream.credentials import AnyCredential, Authorization

_RELATIVE = "vcc://"


@dataclass(frozen=True, slots=True)
class Grant:
    """A container that the caller authorised, and the credentials to use there."""

    url_prefix: str
    credentials: AnyCredential | None


class Containers:
    """The repository's containers, of which only the authorised ones are ever read from."""

    def __init__(
        self, containers: Iterable[VirtualChunkContainer], authorization: Authorization
    ) -> None:
        usable = [container for container in containers if _is_prefix(container.url_prefix)]
        self.authorization = authorization
        self._by_name = {container.name: container for container in usable if container.name}
        # The longest prefix comes first, so that the first match is the closest one.
        self._prefixes = sorted(
            (_with_slash(container.url_prefix) for container in usable), key=len, reverse=True
        )
        self._granted = {_with_slash(url): url for url in authorization.prefixes}

    def resolve(self, location: str) -> str:
        """The absolute form of a location: ``vcc://name/rest`` is below the named container."""
        if not location.lower().startswith(_RELATIVE):
            return location
        name, _, rest = location[len(_RELATIVE) :].partition("/")
        container = self._by_name.get(name)
        if container is None:
            message = (
                f"the virtual chunk {location!r} names the container {name!r}, which the"
                " repository's configuration does not have"
            )
            raise InvalidInputError(message, ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK)
        return _with_slash(container.url_prefix) + rest

    def grant(self, location: str) -> Grant:
        """The authorised container of an absolute location."""
        decoded = unquote(location)
        prefix = next((p for p in self._prefixes if decoded.startswith(unquote(p))), None)
        if prefix is None:
            message = (
                f"no virtual chunk container holds {location!r}: add one whose url_prefix is the"
                " beginning of this location to the repository's configuration"
            )
            raise InvalidInputError(message, ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK)
        granted = self._granted.get(prefix)
        if granted is None:
            message = (
                f"reading from the virtual chunk container {prefix!r} is not authorised: pass it"
                " in authorize_virtual_chunk_access when the repository is opened"
            )
            raise InvalidInputError(message, ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER)
        return Grant(prefix, self.authorization.prefixes[granted])


def _is_prefix(url_prefix: str) -> bool:
    scheme, separator, rest = url_prefix.partition("://")
    return bool(scheme and separator and rest)


def _with_slash(url: str) -> str:
    return url if url.endswith("/") else url + "/"
