"""A metadata store that fails by plan: before a call, after it, and with an unknown outcome.

    store = FaultyMetadataStore(MemoryMetadataStore(), lambda call: "unknown-after" if call.number == 3 else None)

Every call is counted and kept, so a test can first see which calls there are, and then let each of them fail.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from offload_hooks.errors import OutcomeUnknownError, StoreUnavailableError
from offload_hooks.metadata_stores import WritableMetadataStore

MetadataFault = Literal["unavailable", "unknown-before", "unknown-after"]
"""`unavailable`: the call is not made. `unknown-before`, `unknown-after`: it is not made, or is made, and
the outcome of a `put` or `delete` is unknown; a reading call is unavailable."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCall:
    """One call of a store: its number, from 1, the method and the path."""

    number: int
    method: Literal["get", "children", "put", "delete"]
    path: str


class FaultyMetadataStore:
    """A `WritableMetadataStore` over another one.

    Attributes:
        calls: all calls that were made of it, in order.

    Args:
        store: the one that does the work.
        choose: what happens to a call; None if it is just made. It may raise, or end the process.
    """

    def __init__(
        self,
        store: WritableMetadataStore,
        choose: Callable[[MetadataCall], MetadataFault | None] = lambda _: None,
    ) -> None:
        self.store = store
        self.choose = choose
        self.calls: list[MetadataCall] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `WritableMetadataStore`."""
        return self._call("get", path, lambda: self.store.get(path))

    def children(self, path: str) -> list[str]:
        """See `WritableMetadataStore`."""
        return self._call("children", path, lambda: list(self.store.children(path)))

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        return self._call("put", path, lambda: self.store.put(path, value, expected_version))

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        self._call("delete", path, lambda: self.store.delete(path, expected_version))

    def close(self) -> None:
        """See `WritableMetadataStore`."""
        self.store.close()

    def _call(
        self, method: Literal["get", "children", "put", "delete"], path: str, make: Callable[[], T]
    ) -> T:
        with self._lock:
            call = MetadataCall(number=next(self._numbers), method=method, path=path)
            self.calls.append(call)
        fault = self.choose(call)
        answer = make() if fault in (None, "unknown-after") else None
        if fault is None:
            return answer  # type: ignore[return-value]
        if fault == "unavailable" or method in ("get", "children"):
            raise StoreUnavailableError(f"{method} fails as it was told", key=path)
        raise OutcomeUnknownError(f"{method} fails as it was told, and its outcome is unknown", key=path)
