"""The back door: how the suite looks into a store without the driver that it judges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class BackDoor(Protocol):
    """The same tier, reached by another client: the store's own library, plain files, a REST call.

    It may be called from many threads at once. Keys are those of the tier, not the store's names under a prefix.

    It may also have `part_sizes(key) -> list[int] | None`: the sizes of an object's parts by the store, in
    their order; None if that is not known. Without it one case is skipped.
    """

    def put(self, key: str, data: bytes, user_metadata: Mapping[str, str], content_type: str) -> None:
        """Store an object as any other program would, with metadata as the driver would find it (a sidecar, too)."""

    def get(self, key: str) -> bytes | None:
        """An object's bytes; None if there is no object of this key."""

    def keys(self) -> set[str]:
        """The keys of all that is visible in the tier. Things of the driver's own may be among them or not."""
