"""What an object's index tells of a filter that ran over a ledger's entries."""

from __future__ import annotations

from offload_core.codec.index import LedgerIndex
from offload_core.codec.ledger_metadata import LedgerMetadata
from offload_core.filters.record import RECORD_KEY, FilterRecord, parse_filter_record
from offload_hooks.errors import placed


def indexed_filter(ledger: LedgerIndex) -> FilterRecord | None:
    """The whole record of the filter that a ledger was written through; None if it was through none.

    Raises:
        MetadataError, UnsupportedVersionError: it cannot be read, with the ledger.
    """
    metadata = ledger.metadata
    said = metadata.custom if isinstance(metadata, LedgerMetadata) else metadata.properties
    packed = dict[str, bytes | str](said).get(RECORD_KEY)
    if packed is None:
        return None
    with placed(ledger_id=ledger.ledger_id):
        return parse_filter_record(packed)
