"""What a repr may show of settings that can carry secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET_KEY = re.compile(
    r"secret|token|passw|key|auth|credential|cookie|signature|\bsas\b|sas_", re.IGNORECASE
)
_USER_INFO = re.compile(r"(?<=://)[^/?#]*@")
_QUERY = re.compile(r"(?<=://)([^?#\s]*)\?[^#\s]*")
_BEFORE_AT = re.compile(r"[^/@]*@")
HIDDEN = "***"


def redact_url(text: str) -> str:
    """The text with user names, passwords and query strings of URLs hidden."""
    return _QUERY.sub(rf"\1?{HIDDEN}", _USER_INFO.sub(f"{HIDDEN}@", text))


def redact_location(location: str) -> str:
    """A location alone, which need not be a URL, without what a query or a user name tells."""
    place, query, _ = location.partition("?")
    shown = _BEFORE_AT.sub(f"{HIDDEN}@", redact_url(place))
    return f"{shown}?{HIDDEN}" if query else shown


def redact_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options with the values of keys that name a secret hidden."""
    return {
        key: HIDDEN if _SECRET_KEY.search(key) else redact_url(value)
        for key, value in options.items()
    }
