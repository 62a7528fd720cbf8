"""Keeps secrets out of what botocore logs: at DEBUG it writes signed headers and whole answers."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from icechunk_stream.config.redact import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOGGERS = ("botocore.auth", "botocore.endpoint", "botocore.parsers", "botocore.httpchecksum")

_SHORTEST_SECRET = 8
_KEY_FIELDS = (
    r"SecretAccessKey|SessionToken|SecurityToken|AccessKeyId|AWSAccessKeyId|AccessToken|Token"
)
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(x-amz-security-token['\"]?\s*[:=]\s*b?['\"]?)[^'\"\s,&;)]+",
        r"(credential=)[^/,&\s]+",
        r"(signature['\"]?\s*[:=]\s*b?['\"]?)[0-9a-f]{40,}",
        r"(authorization['\"]?\s*:\s*b?['\"]?)(?!AWS4-HMAC)[^'\"\r\n]+",
        rf"(<(?:{_KEY_FIELDS})>)[^<]*",
        rf"(\"(?:{_KEY_FIELDS})\"\s*:\s*\")[^\"]*",
    )
)


class _SecretFilter(logging.Filter):
    """Rewrites records; it drops none."""

    def __init__(self) -> None:
        super().__init__()
        self.values: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_without_bodies, record.args))
        record.msg = self._hide(record.getMessage())
        record.args = None
        return True

    def _hide(self, text: str) -> str:
        for value in tuple(self.values):
            text = text.replace(value, HIDDEN)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\1{HIDDEN}", text)
        return text


def _without_bodies(argument: object) -> object:
    """Parameters of a request without what it writes: that may be long, and nobody's business."""
    match argument:
        case bytes():
            return f"<{len(argument)} bytes>"
        case dict():
            return {key: _without_bodies(value) for key, value in argument.items()}
        case _:
            return argument


_filter = _SecretFilter()


def hide_secrets_in_logs(values: Iterable[str]) -> None:
    """Hide these values, and whatever looks like a key, in the records of botocore."""
    _filter.values.update(value for value in values if len(value) >= _SHORTEST_SECRET)
    for name in _LOGGERS:
        # Adding a filter that is there already changes nothing.
        logging.getLogger(name).addFilter(_filter)
