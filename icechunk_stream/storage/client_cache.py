"""The clients of one process, shared by all storages that are reached and used alike."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from icechunk_stream.storage.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

Spec = TypeVar("Spec")
Client = TypeVar("Client")

_MOST_CLIENTS = 64


class _Kept(Generic[Spec, Client]):
    """Clients by what they depend on; the one that was last used is the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clients: OrderedDict[Spec, Client] = OrderedDict()


class ClientCache(Generic[Spec, Client]):
    """Makes clients; a storage that was copied or unpickled finds those in use."""

    def __init__(self, make: Callable[[Spec], Client]) -> None:
        self._make = make
        self._kept: PerProcess[_Kept[Spec, Client]] = PerProcess(_Kept)

    def get(self, spec: Spec) -> Client:
        try:
            hash(spec)
        except TypeError:
            # A credentials function may be an object that cannot be a key.
            return self._make(spec)
        kept = self._kept.value
        with kept.lock:
            client = kept.clients.pop(spec, None) or self._make(spec)
            kept.clients[spec] = client
            if len(kept.clients) > _MOST_CLIENTS:
                kept.clients.popitem(last=False)
            return client
