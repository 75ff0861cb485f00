"""A PIP-17 object as a filter leaves it: entries taken out, ids and blocks as they were."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from entries import ledger_metadata, pip17_object

from offload_core.format.codec.block_layout import BlockHeader, pack_block_header, padding
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.records.filter_record import RECORD_KEY, DroppedEntries, FilterMode, FilterRecord


def record_of(kept: Sequence[bytes], entries: int) -> FilterRecord:
    """The record of a filter that kept these of `entries` entries."""
    return FilterRecord.of(
        "transactions",
        FilterMode.GAP,
        None,
        DroppedEntries(entries=len(kept), payload_bytes=sum(map(len, kept))),
        {"marker": DroppedEntries(entries=entries - len(kept))},
    )


def filtered_object(payloads, *, keep, ledger_id, counts=None):
    """The object of all these payloads, with padding for those that are not kept; each block keeps its length.

    `counts` are the counts of kept entries in its index, if others.
    """
    record = record_of([each for i, each in enumerate(payloads) if (counts or keep)(i)], len(payloads))
    metadata = replace(ledger_metadata(payloads), custom=((RECORD_KEY, record.pack().encode()),))
    whole = pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=1000, metadata=metadata)
    data = b""
    for block in parse_index(whole.index, whole.key).ledgers[0].blocks:
        assert block.end_entry_id is not None
        header = BlockHeader(
            object_format=ObjectFormat.PIP17,
            block_length=block.length,
            first_entry_id=block.first_entry_id,
            ledger_id=None,
        )
        kept = [i for i in range(block.first_entry_id, block.end_entry_id) if keep(i)]
        content = b"".join(struct.pack(">iq", len(payloads[i]), i) + payloads[i] for i in kept)
        packed = pack_block_header(header) + content
        data += packed + padding(block.length - len(packed))
    entries = tuple(each for each in whole.entries if keep(each[1]))
    return replace(whole, data=data, entries=entries)
