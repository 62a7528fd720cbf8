"""Locations outside of the repository as they are stored: checked URLs in one spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icechunk_stream.config.redact import redact_location as shown
from icechunk_stream.errors import ErrorKind, InvalidInputError
from icechunk_stream.virtual.specs import check_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from icechunk_stream.virtual.containers import Containers

    Mask = npt.NDArray[np.bool_]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# URLs that are stored as they are: most are, and one pass over a column finds them.
_REGULAR = (
    r"^(?:(?:s3|gs|gcs|az|azure|abfs|tigris|http|https)://[^/]+(?:$|/)"
    r"|vcc://[^/]+/"
    r"|file://(?:/(?:[A-Za-z0-9_~!$&'()*+,;=:@^|-]+\.*)+)+$)"
)
# Characters that a file's path and its query keep; all others are percent-encoded.
_PATH_KEEPS = "/!$%&'()*+,-.:;=@[]^_|~"
_QUERY_KEEPS = _PATH_KEEPS + "?#{}`"
# Rows of a column that tell whether many of its locations are alike.
_SAMPLE = 4096
_IGNORED = str.maketrans("", "", "\t\n\r")
_DOT = frozenset((".", "%2e"))
_DOTS = frozenset(("..", ".%2e", "%2e.", "%2e%2e"))


@dataclass(frozen=True, slots=True, eq=False)
class CheckedLocations:
    """Locations as they are stored, and which ones no container takes."""

    locations: pa.Array
    refused: Mask


def check_locations(
    locations: pa.Array, containers: Containers, *, validate: bool
) -> CheckedLocations:
    """A column of locations, with each distinct one looked at once where many are alike."""
    dictionary = _encoded(locations)
    if dictionary is None:
        return _checked(locations, containers, validate=validate)
    distinct = _checked(dictionary.dictionary, containers, validate=validate)
    numbers = dictionary.indices.to_numpy()
    stored = pa.DictionaryArray.from_arrays(dictionary.indices, distinct.locations)
    return CheckedLocations(stored, distinct.refused[numbers])


def normal_location(location: str) -> str:
    """The spelling that is stored: a scheme in lower case; files without what can be resolved."""
    check_text(location, "location")
    scheme = _SCHEME.match(location)
    if scheme is None:
        raise _invalid(location, "it has no scheme")
    name, rest = scheme[1].lower(), location[scheme.end() :]
    if name == "file":
        return _normal_file(rest)
    authority, slash, _ = rest.removeprefix("//").partition("/")
    if not (rest.startswith("//") and authority):
        raise _invalid(location, "it names no bucket, host or container")
    if name == "vcc" and not slash:
        raise _invalid(location, "it names a container, but nothing in it")
    return f"{name}:{rest}"


def _encoded(locations: pa.Array) -> pa.DictionaryArray | None:
    """Each distinct location once, where a sample says that this is worth the hashing."""
    if pa.types.is_dictionary(locations.type):
        return locations
    stride = max(len(locations) // _SAMPLE, 1)
    sample = locations.take(pa.array(np.arange(0, len(locations), stride)))
    few = pc.count_distinct(sample).as_py() * 2 <= len(sample)
    return locations.dictionary_encode() if few else None


def _checked(locations: pa.Array, containers: Containers, *, validate: bool) -> CheckedLocations:
    stored = _normal(locations)
    if not validate:
        return CheckedLocations(stored, np.zeros(len(stored), np.bool_))
    return CheckedLocations(stored, ~containers.takes(stored))


def _normal(locations: pa.Array) -> pa.Array:
    regular = pc.match_substring_regex(locations, _REGULAR)
    if pc.all(regular, min_count=0).as_py():
        return locations
    rows = np.flatnonzero(~regular.to_numpy(zero_copy_only=False))
    spelled = [normal_location(location) for location in locations.take(rows).to_pylist()]
    mask = pc.invert(regular)
    return pc.replace_with_mask(locations, mask, pa.array(spelled, locations.type))


def _normal_file(rest: str) -> str:
    """Browsers' rules for file URLs, which the reference library has."""
    text = rest.translate(_IGNORED).strip()
    at = min((text.find(mark) for mark in "?#" if mark in text), default=len(text))
    path, query = text[:at].replace("\\", "/"), text[at:]
    host = ""
    if path.startswith("//"):
        host, slash, path = path[2:].partition("/")
        path = slash + path
    host = host.lower()
    host = "" if host == "localhost" else host
    return f"file://{host}{_resolved(path)}{quote(query, safe=_QUERY_KEEPS)}"


def _resolved(path: str) -> str:
    """An absolute path without ``.`` and ``..``."""
    kept: list[str] = []
    parts = path.removeprefix("/").split("/")
    for part in parts:
        lowered = part.lower()
        if lowered in _DOTS:
            del kept[-1:]
        elif lowered not in _DOT:
            kept.append(quote(part, safe=_PATH_KEEPS))
    is_folder = parts[-1].lower() in _DOT | _DOTS and kept
    return "/" + "/".join(kept) + ("/" if is_folder else "")


def _invalid(location: str, why: str) -> InvalidInputError:
    # A query may be a signature, also where the URL before it is none.
    named = shown(location.partition("?")[0])
    message = (
        f"the location {named!r} of a virtual chunk cannot be stored: {why}; write a URL such as"
        " s3://bucket/key, file:///path or vcc://container/key"
    )
    return InvalidInputError(message, ErrorKind.INVALID_VIRTUAL_REF)
