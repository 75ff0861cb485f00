"""Ledgers and segments of which something is missing, and reads that say so."""

from dataclasses import replace
from typing import Any

import pytest
from entries import LedgerPart, WrittenObject, pip17_object, streaming_object
from tiers import TOPIC

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.streaming import pack_streaming_index
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_hooks.errors import DataLossError
from pulsar_offload import TierReader, scan

NAME = TopicName(TOPIC)


HINT = "What there is can be read: fail_on_data_loss=False."


def payloads(ledger_id: int, first: int, stop: int) -> list[bytes]:
    return [b"%d:%d" % (ledger_id, i) for i in range(first, stop)]


def whole(ledger_id: int, entries: int = 3) -> WrittenObject:
    return pip17_object(payloads(ledger_id, 0, entries), ledger_id=ledger_id)


def segment(ledger_id: int, first: int, stop: int) -> WrittenObject:
    blocks = [payloads(ledger_id, first, stop)]
    return streaming_object([LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first)])


def closed_with(written: WrittenObject, entries: int) -> WrittenObject:
    """A segment whose index records that the ledger was closed with `entries` entries."""
    index = parse_index(written.index, written.key)
    (ledger,) = index.ledgers
    info = LedgerInfo(ledger_id=ledger.ledger_id, entries=entries, size=None, timestamp_ms=1)
    return replace(written, index=pack_streaming_index([(info, ledger.blocks)], index.data_length))


def ending_one(first: int) -> WrittenObject:
    """A segment with the rest of ledger 5, and ledger 6."""
    parts = [
        LedgerPart(ledger_id=5, blocks=[payloads(5, first, first + 2)], first_entry_id=first),
        LedgerPart(ledger_id=6, blocks=[payloads(6, 0, 3)]),
    ]
    return streaming_object(parts)


def read(tier: TierReader, **options: Any) -> list[bytes]:
    table = scan(tier, level="entries", columns=["value"], **options).to_table()
    return table["value"].to_pylist()


def at(ledger_id: int, entry_id: int, batch_index: int = 0) -> dict[TopicName, Position]:
    return {NAME: Position(ledger_id, entry_id, batch_index)}


def lose(tier: TierReader, **options: Any) -> DataLossError:
    with pytest.raises(DataLossError) as caught:
        read(tier, **options)
    assert caught.value.hint == HINT
    return caught.value
