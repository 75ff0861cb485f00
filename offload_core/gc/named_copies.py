"""Whether the copies that records name are as they should be, where records say that they are.

That is the tier whose garbage is collected, or another one that copies were moved to. Of a tier that was not given
nothing is known: what lies there is not there. The rule is that of `check_copy`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from offload_core.catalogue import RecordedCopy
from offload_core.catalogue.copy_check import check_stored, is_deletable_for
from offload_core.catalogue.known_tiers import is_another_place, is_same_place, tier_record
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import DriverMetadata, LedgerRecord
from offload_core.tier import Tier
from offload_hooks.errors import StoreError

Asked = tuple[ObjectKey, int]
"""A copy, by the key of its data object, and a ledger of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectCopy:
    """Judges recorded copies in a tier; picklable."""

    tier: Tier

    def __call__(self, asked: tuple[RecordedCopy, LedgerRecord]) -> bool | StoreError:
        """Whether another copy may go because of this one; an error if the tier cannot be read."""
        copy, record = asked
        try:
            return is_deletable_for(check_stored(self.tier, record, copy))
        except StoreError as error:
            error.at(key=copy.key.data_key)
            return error


class NamedCopies:
    """Judges copies, each once for a record; calls may come from many threads.

    Args:
        folder: that copies in `tier` lie in.
        elsewhere: the tiers that copies were moved to.
        inspected: copies in `tier` that were judged before, by `InspectCopy`; errors are asked for again.
    """

    def __init__(
        self,
        tier: Tier,
        folder: str,
        elsewhere: Sequence[Tier],
        inspected: Iterable[tuple[tuple[RecordedCopy, LedgerRecord], bool | StoreError]] = (),
    ) -> None:
        self._tier, self._here, self._folder = tier, tier_record(tier), folder
        self._elsewhere = [(tier_record(each), each) for each in elsewhere]
        self._known = {
            _asked(tier, copy): (record, found)
            for (copy, record), found in inspected
            if not isinstance(found, StoreError)
        }

    def holds(self, copy: RecordedCopy, record: LedgerRecord) -> bool:
        """Whether a copy is there, can be read, has what the ledger's record says and lost nothing. `StoreError`."""
        driver = copy.driver
        if driver is None or is_same_place(self._here, driver):
            return self._holds(self._tier, copy, record)
        elsewhere = self._tier_of(driver)
        if elsewhere is not None:
            return self._holds(elsewhere, self._at_its_root(copy), record)
        return not is_another_place(self._here, driver) and self._holds(self._tier, copy, record)

    def _holds(self, tier: Tier, copy: RecordedCopy, record: LedgerRecord) -> bool:
        asked = _asked(tier, copy)
        known = self._known.get(asked)
        if known is None or known[0] != record:
            known = self._known[asked] = (record, is_deletable_for(check_stored(tier, record, copy)))
        return known[1]

    def _tier_of(self, driver: DriverMetadata) -> Tier | None:
        return next((tier for there, tier in self._elsewhere if is_same_place(there, driver)), None)

    def _at_its_root(self, copy: RecordedCopy) -> RecordedCopy:
        """The same copy, in a tier whose URL says the folder."""
        return replace(
            copy,
            key=self._without_folder(copy.key),
            mapfile_key=None if copy.mapfile_key is None else self._without_folder(copy.mapfile_key),
        )

    def _without_folder(self, key: ObjectKey) -> ObjectKey:
        return replace(key, folder=key.folder.removeprefix(self._folder))


def _asked(tier: Tier, copy: RecordedCopy) -> tuple[int, Asked]:
    return id(tier), (copy.key, copy.ledger_id)
