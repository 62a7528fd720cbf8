"""``config.yaml`` of repositories of spec version 1.

Documents are read event by event: no tag constructs anything, aliases are refused, and
depth, size and count are bounded while reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from icechunk_stream.errors import ErrorKind, FormatError, InvalidInputError
from icechunk_stream.format.config_encode import encode_config, too_deep
from icechunk_stream.format.config_node import Node, Plain, Tagged
from icechunk_stream.format.config_tree import decode_config
from icechunk_stream.format.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icechunk_stream.config import RepositoryConfig
    from icechunk_stream.format.config_node import Tree

Bytes: TypeAlias = "bytes | bytearray | memoryview"

MAX_SIZE = 2**20
MAX_DEPTH = 128
MAX_EVENTS = 100_000
MAX_DIRECTIVES = 8

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(_CORE + name for name in ("null", "bool", "int", "float"))
_STR, _SEQ, _MAP = (_CORE + name for name in ("str", "seq", "map"))
_DIRECTIVE = re.compile(r"(?:\A|[\r\n\x85\u2028\u2029])%")


def decode_config_yaml(data: Bytes, key: str) -> RepositoryConfig:
    """The stored configuration; raises ``FormatError`` that names ``key``."""
    return decode_config(config_yaml_root(data, key))


def encode_config_yaml(config: RepositoryConfig) -> bytes:
    """The configuration as the reference library reads it."""
    return config_yaml(encode_config(config))


def config_yaml_root(data: Bytes, key: str) -> Node:
    """The stored document, whatever it holds; raises ``FormatError`` that names ``key``."""
    return Node(_parse(bytes(data), key), key, tagged=True)


def config_yaml(tree: dict[str, Tree]) -> bytes:
    """The bytes of a document."""
    _check_depth(tree, MAX_DEPTH)
    encoded = yaml_text(tree).encode()
    if len(encoded) > MAX_SIZE:
        raise InvalidInputError(f"the configuration is {len(encoded)} bytes, more than {MAX_SIZE}")
    return encoded


def _parse(data: bytes, key: str) -> Tree:
    parser = _Parser(key)
    try:
        for count, event in enumerate(_events(data, key)):
            if count > MAX_EVENTS:
                raise parser.error(f"it has more than {MAX_EVENTS} parts")
            parser.take(event)
    except yaml.YAMLError as error:
        raise parser.error(" ".join(str(error).split())) from None
    return parser.result()


def _events(data: bytes, key: str) -> Iterator[Any]:
    if len(data) > MAX_SIZE:
        raise _invalid(f"{len(data)} bytes are more than {MAX_SIZE}", key)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8", key) from None
    # Each directive is compared with all before it.
    if len(_DIRECTIVE.findall(text)) > MAX_DIRECTIVES:
        raise _invalid(f"it has more than {MAX_DIRECTIVES} directives", key)
    events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
    return events


@dataclass(slots=True)
class _Open:
    """A list or map whose end is still to come; ``name`` waits for its value."""

    container: list[Tree] | dict[str, Tree]
    tag: str | None
    name: str | None = None


@dataclass(slots=True)
class _Parser:
    key: str
    documents: list[Tree] = field(default_factory=list)
    open: list[_Open] = field(default_factory=list)

    def take(self, event: Any) -> None:  # noqa: ANN401 - PyYAML's events have no stubs
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.SequenceStartEvent():
                self._start([], event.tag)
            case yaml.MappingStartEvent():
                self._start({}, event.tag)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._end()
            case yaml.AliasEvent():
                raise self.error("it has an alias; write the value out")
            case _:
                pass

    def result(self) -> Tree:
        document = self.documents[0] if self.documents else {}
        return {} if document == Plain("") else document

    def error(self, reason: str) -> FormatError:
        return _invalid(reason, self.key)

    def _start(self, container: list[Tree] | dict[str, Tree], tag: str | None) -> None:
        if self.open and self._awaits_name():
            raise self.error("a key is not a string")
        if len(self.open) >= MAX_DEPTH:
            raise self.error(f"it is nested deeper than {MAX_DEPTH} levels")
        self.open.append(_Open(container, tag))

    def _end(self) -> None:
        ended = self.open.pop()
        expected = _SEQ if isinstance(ended.container, list) else _MAP
        self._add(self._tagged(ended.container, ended.tag, frozenset({expected})))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if self.open and self._awaits_name():
            self.open[-1].name = event.value
            return
        plain = not event.style and event.tag != _STR
        value = Plain(event.value) if plain else event.value
        self._add(self._tagged(value, event.tag, _SCALAR_TAGS | {_STR}))

    def _tagged(self, value: Tree, tag: str | None, allowed: frozenset[str]) -> Tree:
        if tag is None or tag in allowed:
            return value
        if not tag.startswith("!") or tag == "!":
            raise self.error(f"the tag {tag!r} is not allowed")
        return Tagged(tag[1:], value)

    def _awaits_name(self) -> bool:
        return isinstance(self.open[-1].container, dict) and self.open[-1].name is None

    def _add(self, value: Tree) -> None:
        if not self.open:
            if self.documents:
                raise self.error("it has more than one document")
            self.documents.append(value)
            return
        parent = self.open[-1]
        if isinstance(parent.container, list):
            parent.container.append(value)
            return
        assert parent.name is not None
        if parent.name in parent.container:
            raise self.error(f"the key {parent.name!r} is there twice")
        parent.container[parent.name] = value
        parent.name = None


def _check_depth(tree: Tree, depth: int) -> None:
    if depth < 0:
        raise too_deep()
    match tree:
        case Tagged(_, value):
            _check_depth(value, depth)
        case dict():
            for value in tree.values():
                _check_depth(value, depth - 1)
        case list():
            for value in tree:
                _check_depth(value, depth - 1)
        case _:
            pass


def _invalid(reason: str, key: str) -> FormatError:
    return FormatError(f"invalid YAML: {reason}", ErrorKind.CONFIG_DESERIALIZATION, key=key)
