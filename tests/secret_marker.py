"""One marker in all secrets of the tests, and the forms in which it could show."""

import re
from base64 import b64decode, b64encode
from pathlib import Path
from urllib.parse import quote

# Letters and digits that are base64 themselves: it can be in the key of an Azure account.
MARKER = "Mark7f3a9cSecretZ0Q9"
HIDDEN = "[marker]"


def _encoded(text: bytes) -> set[str]:
    """What of base64 tells of a text, wherever in the encoded bytes that begins."""
    found = set()
    for before in range(3):
        whole = b64encode(b"-" * before + text).decode().rstrip("=")
        found.add(whole[before + bool(before) : len(whole) - 1])
    return found


def _numbers(data: bytes) -> set[str]:
    return {data.hex(), ", ".join(map(str, data))}


_FORMS = {MARKER} | _encoded(MARKER.encode()) | _numbers(MARKER.encode())
_FORMS |= _numbers(b64decode(MARKER))
_BINARY = b64decode(MARKER)
_CHUNK = 2**20


class Marked:
    """The forms of the marker, and secrets that are known while tests run only."""

    def __init__(self) -> None:
        self._forms = set(_FORMS)
        self.own_paths: set[Path] = set()
        self._compile()

    def add(self, secret: str) -> None:
        """Watch for a secret that holds no marker, such as a signature."""
        self._forms |= {secret, quote(secret, safe="")}
        self._compile()

    def _compile(self) -> None:
        self._texts = {form.lower() for form in self._forms}
        self._bytes = {form.encode() for form in self._texts} | {_BINARY.lower()}

    def is_in(self, text: str | bytes) -> bool:
        lowered = text.lower()
        if isinstance(lowered, str):
            return any(form in lowered for form in self._texts)
        return any(form in lowered for form in self._bytes)

    def is_in_file(self, path: Path) -> bool:
        before = b""
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                if self.is_in(before + chunk):
                    return True
                before = chunk[-max(map(len, self._forms)) :]
        return False

    def hide(self, text: str) -> str:
        shown = "|".join(map(re.escape, self._forms))
        return re.sub(shown, HIDDEN, text, flags=re.IGNORECASE)


marked = Marked()
