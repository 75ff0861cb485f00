"""Whether the copies that records name are here as they should be: before another copy of a ledger may go."""

from __future__ import annotations

from collections.abc import Iterable

from offload_core.catalogue import RecordedCopy
from offload_core.catalogue.listing import Pair
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import LedgerRecord
from offload_core.tier import Tier
from offload_core.verify.objects import Examined, examine
from offload_hooks.errors import StoreError


class CopyLooks:
    """Looks at copies, each once; calls may come from many threads.

    Args:
        seen: copies that were examined before, by `Examine`; those that could not be are looked at again.
    """

    def __init__(
        self, tier: Tier, seen: Iterable[tuple[ObjectKey, Examined | StoreError | None]] = ()
    ) -> None:
        self._tier = tier
        self._seen = {key: found for key, found in seen if not isinstance(found, StoreError)}

    def holds(self, copy: RecordedCopy, record: LedgerRecord) -> bool:
        """Whether a copy is here, can be read, has what the ledger's record says and lost nothing. `StoreError`."""
        keys = [key for key in (copy.key, copy.mapfile_key) if key is not None]
        return any(_is_whole(self._look(key), copy, record) for key in keys)

    def _look(self, key: ObjectKey) -> Examined | None:
        if key not in self._seen:
            self._seen[key] = examine(self._tier, Pair(key=key))
        return self._seen[key]


def _is_whole(found: Examined | None, copy: RecordedCopy, record: LedgerRecord) -> bool:
    if found is None or not found.is_sound or found.lost is not None:
        return False
    extent = next((each for each in found.extents if each.ledger_id == record.ledger_id), None)
    if extent is None:
        return found.has_gaps
    if copy.stop_entry_id is not None and copy.stop_entry_id <= extent.last_block:
        return False
    entries = record.info.entries if record.info.is_closed else None
    return entries is None or extent.entries is None or entries == extent.entries
