"""Whether a cold copy is there as its record says, before the hot one goes."""

from __future__ import annotations

from offload_core.catalogue.reading import read_index
from offload_core.codec.index import ObjectIndex
from offload_core.codec.object_format import ObjectKey
from offload_core.filters import FilterRecord
from offload_core.metadata import LedgerRecord
from offload_core.offload.filter_check import checked_record
from offload_core.tier import Tier
from offload_hooks.errors import DataLossError, ObjectNotFoundError
from offload_hooks.values import ObjectStat


def check_cold_copy(tier: Tier, ledger: LedgerRecord, key: ObjectKey) -> tuple[FilterRecord, ...]:
    """There is an index that can be read, of data of that length, with all entries of the record.

    Returns:
        What a filter did to them, if it went through one; see `check_settled`.

    Raises:
        DataLossError: it is not so.
        FormatError, StoreError: of the index and the tier.
    """
    data, index = look_up(tier, key, ledger.ledger_id)
    end = index.ledgers[0].blocks[-1].end_entry_id
    if index.data_length != data.size_bytes or end != ledger.info.entries:
        raise DataLossError(
            "a cold copy that is recorded as complete is not what its record says",
            key=key.data_key,
            ledger_id=ledger.ledger_id,
            expected=f"{ledger.info.entries} entries in {index.data_length} bytes",
            found=f"{end} entries in {data.size_bytes} bytes",
        )
    driver = None if ledger.context is None else ledger.context.driver
    record = checked_record(ledger.ledger_id, index.ledgers[0], driver, entries=end or 0, key=key.data_key)
    return () if record is None else (record,)


def look_up(tier: Tier, key: ObjectKey, ledger_id: int) -> tuple[ObjectStat, ObjectIndex]:
    """A data object as it is stored, and its index; of a copy that is recorded as complete.

    Raises:
        DataLossError: one of them is not there.
        FormatError, StoreError: of the index and the tier.
    """
    try:
        data, stored = tier.stat(key.data_key), tier.stat(key.index_key)
        return data, read_index(tier, key, index_bytes=stored.size_bytes, data_bytes=data.size_bytes)
    except ObjectNotFoundError as error:
        raise DataLossError(
            "a cold copy that is recorded as complete is not there", key=error.key, ledger_id=ledger_id
        ) from error
