"""Whether the segments of a ledger are there as its record says, before its hot copy goes."""

from __future__ import annotations

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.codec.index import LedgerIndex
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.codec.object_format import ObjectKey
from offload_core.filters import FilterRecord
from offload_core.metadata import LedgerRecord, OffloadSegment
from offload_core.offload.cold_check import look_up
from offload_core.offload.filter_check import checked_record
from offload_hooks.errors import DataLossError


def check_segments(tiers: KnownTiers, ledger: LedgerRecord) -> tuple[FilterRecord, ...]:
    """Each of the ledger's segments has an index that can be read, of data of that length, with its entries from the
    one behind the last segment's; and they go to the ledger's end.

    Returns:
        What filters did to them, of those that went through one; see `check_settled`.

    Raises:
        DataLossError: it is not so.
        OptionError: a segment lies in a tier that is not configured.
        FormatError, StoreError: of an index and a tier.
    """
    context = ledger.context
    assert context is not None
    stop = 0
    records: list[FilterRecord] = []
    for share in context.segments:
        key = ObjectKey(folder="", uuid=share.uuid, ledger_id=None, is_index=False)
        data, index = look_up(tiers.find(share.driver or context.driver), key, ledger.ledger_id)
        found = next((each for each in index.ledgers if each.ledger_id == ledger.ledger_id), None)
        if index.data_length != data.size_bytes or not _holds(found, share, stop):
            raise DataLossError(
                "a segment that is recorded as complete is not what its ledger's record says",
                key=key.data_key,
                ledger_id=ledger.ledger_id,
                expected=f"entries {stop} to {share.end_entry_id} in {index.data_length} bytes",
                found=f"{_described(found)} in {data.size_bytes} bytes",
            )
        assert share.end_entry_id is not None
        entries = share.end_entry_id + 1 - stop
        record = checked_record(ledger.ledger_id, found, share.driver, entries=entries, key=key.data_key)
        if record is not None:
            records.append(record)
        stop = share.end_entry_id + 1
    if stop < (ledger.info.entries or 0):
        raise DataLossError(
            "the segments of a ledger do not go to its end",
            ledger_id=ledger.ledger_id,
            expected=f"{ledger.info.entries} entries",
            found=stop,
        )
    return tuple(records)


def _holds(found: LedgerIndex | None, share: OffloadSegment, first: int) -> bool:
    """Whether an index has a share's entries. It tells where blocks begin, and how far the ledger went.

    Where a filter left nothing of them, it has a block all the same.
    """
    if found is None or not share.complete or share.end_entry_id is None or found.first_entry_id != first:
        return False
    entries = found.metadata.entries if isinstance(found.metadata, LedgerInfo) else None
    return found.blocks[-1].first_entry_id <= share.end_entry_id < (entries or 0)


def _described(found: LedgerIndex | None) -> str:
    if found is None:
        return "none"
    return (
        f"blocks from entry {found.first_entry_id} to one that begins with {found.blocks[-1].first_entry_id}"
    )
