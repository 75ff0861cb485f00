"""Whether the copies that records name are as they should be, where records say that they are.

That is the tier whose garbage is collected, or another one that copies were moved to. Of a tier that was not given
nothing is known: what lies there is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offload_core.catalogue import RecordedCopy
from offload_core.catalogue.known_tiers import is_another_place, is_same_place, tier_record
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import DriverMetadata, LedgerRecord
from offload_core.tier import Tier
from offload_core.verify.copy_looks import CopyLooks


class NamedCopies:
    """Looks at copies, each once; calls may come from many threads.

    Args:
        looks: looks at those in `tier`, which lie in `folder`.
        elsewhere: the tiers that copies were moved to.
    """

    def __init__(self, tier: Tier, looks: CopyLooks, folder: str, elsewhere: Sequence[Tier]) -> None:
        self._here, self._looks, self._folder = tier_record(tier), looks, folder
        self._elsewhere = [(tier_record(each), CopyLooks(each)) for each in elsewhere]

    def holds(self, copy: RecordedCopy, record: LedgerRecord) -> bool:
        """Whether a copy is there, can be read, has what the ledger's record says and lost nothing. `StoreError`."""
        driver = copy.driver
        if driver is None or is_same_place(self._here, driver):
            return self._looks.holds(copy, record)
        elsewhere = self._looks_at(driver)
        if elsewhere is not None:
            return elsewhere.holds(self._at_its_root(copy), record)
        return not is_another_place(self._here, driver) and self._looks.holds(copy, record)

    def _looks_at(self, driver: DriverMetadata) -> CopyLooks | None:
        return next((looks for there, looks in self._elsewhere if is_same_place(there, driver)), None)

    def _at_its_root(self, copy: RecordedCopy) -> RecordedCopy:
        """The same copy, in a tier whose URL says the folder."""
        return replace(
            copy,
            key=self._without_folder(copy.key),
            mapfile_key=None if copy.mapfile_key is None else self._without_folder(copy.mapfile_key),
        )

    def _without_folder(self, key: ObjectKey) -> ObjectKey:
        return replace(key, folder=key.folder.removeprefix(self._folder))
