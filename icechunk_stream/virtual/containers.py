"""Which container a location outside of the repository belongs to, and whether it may be read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow.compute as pc

from icechunk_stream.config.redact import redact_location as shown
from icechunk_stream.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt
    import pyarrow as pa

    from icechunk_stream.config import VirtualChunkContainer
    from icechunk_stream.credentials import AnyCredential, Authorization

_RELATIVE = "vcc://"
# Clients of these take a key as it is; other ones cannot address keys with such segments.
_VERBATIM = ("s3://", "tigris://")
_ODD_SEGMENT = r"://[^/]*/(?:[^?#]*/)?(?:\.\.?)?/|/\.\.?$"


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
        named = [(f"{_RELATIVE}{name}/", c.url_prefix) for name, c in self._by_name.items()]
        self._beginnings = [(prefix, prefix) for prefix in self._prefixes] + named
        self._granted = {_with_slash(url): url for url in authorization.prefixes}

    def resolve(self, location: str) -> str:
        """The absolute form of a location: ``vcc://name/rest`` is below the named container."""
        if not location.lower().startswith(_RELATIVE):
            return location
        name, _, rest = location[len(_RELATIVE) :].partition("/")
        container = self._by_name.get(name)
        if container is None:
            message = (
                f"the virtual chunk {shown(location)!r} names the container {shown(name)!r}, which"
                " the repository's configuration does not have"
            )
            raise InvalidInputError(message, ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK)
        return _with_slash(container.url_prefix) + rest

    def takes(self, locations: pa.Array) -> npt.NDArray[np.bool_]:
        """Which stored locations lie in a container, where its client can address them."""
        taken = np.zeros(len(locations), np.bool_)
        for prefix, target in self._beginnings:
            found = pc.starts_with(locations, prefix)
            if not target.startswith(_VERBATIM):
                found = pc.and_not(found, pc.match_substring_regex(locations, _ODD_SEGMENT))
            taken |= found.to_numpy(zero_copy_only=False)
        return taken

    def require(self, location: str) -> None:
        """Refuse a stored location that ``takes`` would not take, and say why."""
        absolute = self.resolve(location)
        if not absolute.startswith(tuple(self._prefixes)):
            raise _no_container(location)
        if not (absolute.startswith(_VERBATIM) or re.search(_ODD_SEGMENT, absolute) is None):
            message = (
                f"the virtual chunk {shown(location)!r} has an empty, '.' or '..' segment, which"
                " this kind of store cannot address: give the location without it"
            )
            raise InvalidInputError(message, ErrorKind.INVALID_VIRTUAL_REF)

    def grant(self, location: str) -> Grant:
        """The authorised container of an absolute location."""
        decoded = unquote(location)
        prefix = next((p for p in self._prefixes if decoded.startswith(unquote(p))), None)
        if prefix is None:
            raise _no_container(location)
        granted = self._granted.get(prefix)
        if granted is None:
            message = (
                f"reading from the virtual chunk container {shown(prefix)!r} is not authorised:"
                " pass it in authorize_virtual_chunk_access when the repository is opened"
            )
            raise InvalidInputError(message, ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER)
        return Grant(prefix, self.authorization.prefixes[granted])


def _no_container(location: str) -> InvalidInputError:
    message = (
        f"no virtual chunk container holds {shown(location)!r}: add one whose url_prefix is the"
        " beginning of this location to the repository's configuration"
    )
    return InvalidInputError(message, ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK)


def _is_prefix(url_prefix: str) -> bool:
    scheme, separator, rest = url_prefix.partition("://")
    return bool(scheme and separator and rest)


def _with_slash(url: str) -> str:
    return url if url.endswith("/") else url + "/"
