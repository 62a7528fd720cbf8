"""Where virtual chunks live: object store settings, their factories, and containers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar, TypeAlias

from icechunk_stream.config.fields import (
    U32,
    Choice,
    Flag,
    Kind,
    Settings,
    Shape,
    Shaped,
    Text,
    check_instance,
    check_text,
    check_text_map,
    describe,
    offer_variants,
)
from icechunk_stream.config.redact import redact_options, redact_url
from icechunk_stream.errors import InvalidInputError


class ChecksumAlgorithm(Enum):
    """The checksum that S3 write requests carry."""

    Crc32 = 0
    Crc32c = 1
    Crc64Nvme = 2
    Sha1 = 3
    Sha256 = 4


_CHECKSUM_NAMES = {
    "crc32": ChecksumAlgorithm.Crc32,
    "crc32c": ChecksumAlgorithm.Crc32c,
    "crc64_nvme": ChecksumAlgorithm.Crc64Nvme,
    "sha1": ChecksumAlgorithm.Sha1,
    "sha256": ChecksumAlgorithm.Sha256,
}


@dataclass(slots=True, repr=False)
class S3Options(Settings):
    """How to reach an S3-compatible store; credentials are given apart and never stored."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "region": Text(),
            "endpoint_url": Text(),
            "anonymous": Flag(),
            "allow_http": Flag(),
            "force_path_style": Flag(),
            "network_stream_timeout_seconds": U32,
            "requester_pays": Flag(),
            "checksum_algorithm": Choice(_CHECKSUM_NAMES),
        }
    )
    REQUIRED: ClassVar[frozenset[str]] = frozenset(
        {"anonymous", "allow_http", "force_path_style", "requester_pays"}
    )

    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    force_path_style: bool = False
    network_stream_timeout_seconds: int | None = None
    requester_pays: bool = False
    checksum_algorithm: ChecksumAlgorithm | None = None

    def __repr__(self) -> str:
        url = None if self.endpoint_url is None else redact_url(self.endpoint_url)
        return describe(self, endpoint_url=url)


class ObjectStoreConfig:
    """The settings of one object store; its kinds are attributes, as ``ObjectStoreConfig.S3``."""

    __slots__ = ()
    InMemory: ClassVar[type[InMemoryStore]]
    LocalFileSystem: ClassVar[type[LocalFileSystemStore]]
    S3Compatible: ClassVar[type[S3CompatibleStore]]
    S3: ClassVar[type[S3Store]]
    Gcs: ClassVar[type[GcsStore]]
    Azure: ClassVar[type[AzureStore]]
    Tigris: ClassVar[type[TigrisStore]]
    Http: ClassVar[type[HttpStore]]


@dataclass(slots=True)
class InMemoryStore(ObjectStoreConfig):
    pass


@dataclass(slots=True)
class LocalFileSystemStore(ObjectStoreConfig):
    path: str

    def __post_init__(self) -> None:
        self.path = check_text(self.path, "the path of a local file system store")


@dataclass(slots=True)
class S3Store(ObjectStoreConfig):
    options: S3Options

    def __post_init__(self) -> None:
        check_instance(S3Options, self.options, "the options of an S3 store")


@dataclass(slots=True)
class S3CompatibleStore(ObjectStoreConfig):
    options: S3Options

    def __post_init__(self) -> None:
        check_instance(S3Options, self.options, "the options of an S3-compatible store")


@dataclass(slots=True)
class TigrisStore(ObjectStoreConfig):
    options: S3Options

    def __post_init__(self) -> None:
        check_instance(S3Options, self.options, "the options of a Tigris store")


@dataclass(slots=True, init=False, repr=False)
class GcsStore(ObjectStoreConfig):
    opts: dict[str, str]

    def __init__(self, opts: Mapping[str, str] | None = None) -> None:
        self.opts = check_text_map(opts, "the options of a GCS store")

    def __repr__(self) -> str:
        return f"ObjectStoreConfig.Gcs({redact_options(self.opts)!r})"


@dataclass(slots=True, init=False, repr=False)
class AzureStore(ObjectStoreConfig):
    opts: dict[str, str]

    def __init__(self, opts: Mapping[str, str] | None = None) -> None:
        self.opts = check_text_map(opts, "the options of an Azure store")

    def __repr__(self) -> str:
        return f"ObjectStoreConfig.Azure({redact_options(self.opts)!r})"


@dataclass(slots=True, init=False, repr=False)
class HttpStore(ObjectStoreConfig):
    opts: dict[str, str]
    headers: dict[str, str] | None

    def __init__(
        self,
        opts: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.opts = check_text_map(opts, "the options of an HTTP store")
        self.headers = check_text_map(headers, "the headers of an HTTP store") or None
        if "headers" in self.opts:
            raise InvalidInputError("an HTTP store has no option 'headers'; pass headers=")

    def __repr__(self) -> str:
        headers = None if self.headers is None else redact_options(self.headers)
        return f"ObjectStoreConfig.Http({redact_options(self.opts)!r}, {headers!r})"


AnyObjectStoreConfig: TypeAlias = (
    InMemoryStore
    | LocalFileSystemStore
    | S3Store
    | S3CompatibleStore
    | TigrisStore
    | GcsStore
    | AzureStore
    | HttpStore
)

# The names under which the reference library offers them.
offer_variants(
    ObjectStoreConfig,
    {
        "InMemory": InMemoryStore,
        "LocalFileSystem": LocalFileSystemStore,
        "S3Compatible": S3CompatibleStore,
        "S3": S3Store,
        "Gcs": GcsStore,
        "Azure": AzureStore,
        "Tigris": TigrisStore,
        "Http": HttpStore,
    },
)


def as_object_store(value: object, where: str) -> AnyObjectStoreConfig:
    if isinstance(value, AnyObjectStoreConfig):
        return value
    raise InvalidInputError(f"{where} must be an ObjectStoreConfig, not {type(value).__name__}")


@dataclass(slots=True, repr=False)
class VirtualChunkContainer(Settings):
    """Chunks whose URL starts with ``url_prefix`` are read from ``store``."""

    KINDS: ClassVar[Mapping[str, Kind]] = MappingProxyType(
        {
            "name": Text(),
            "url_prefix": Text(),
            "store": Shaped(Shape.OBJECT_STORE, as_object_store),
        }
    )
    REQUIRED: ClassVar[frozenset[str]] = frozenset({"url_prefix", "store"})

    url_prefix: str
    store: AnyObjectStoreConfig
    name: str | None = None

    def __repr__(self) -> str:
        return describe(self, url_prefix=redact_url(self.url_prefix))


def as_containers(value: object, where: str) -> dict[str, VirtualChunkContainer]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{where} must be a mapping, not {type(value).__name__}")
    return {
        check_text(key, f"a key of {where}"): check_instance(
            VirtualChunkContainer, container, f"{where}[{key!r}]"
        )
        for key, container in value.items()
    }
