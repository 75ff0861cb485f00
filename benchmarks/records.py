"""Records of big topics: one change of a record of many ledgers, and a snapshot of many aborted transactions.

The peers parse and write the same bytes whole: protobuf's own parser, and fastavro.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro

from benchmarks.measure import Result, one_core
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.managed_ledger_info import (
    LedgerRecord,
    ManagedLedgerInfo,
    pack_managed_ledger_info,
)
from offload_core.metadata.records.offload_context import DriverMetadata, OffloadContext
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.reading.transaction_buffers import BufferSnapshot, pack_snapshot, parse_snapshot
from offload_proto import managed_ledger_pb2

LEDGERS = 10_000
ABORTED = 100_000
ROUNDS = 9
DRIVER = DriverMetadata(name="aws-s3", properties=(("bucket", "cold"), ("region", "eu-west-1")))
TOPIC = "acme/cold/persistent/orders"
SNAPSHOT_SCHEMA: Any = {
    "type": "record",
    "name": "TransactionBufferSnapshot",
    "fields": [
        {
            "name": "aborts",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "AbortTxnMetadata",
                        "fields": [
                            {"name": name, "type": "long"}
                            for name in ("entryId", "ledgerId", "txnIdLeastBits", "txnIdMostBits")
                        ],
                    },
                },
            ],
        },
        {"name": "maxReadPositionEntryId", "type": "long"},
        {"name": "maxReadPositionLedgerId", "type": "long"},
        {"name": "topicName", "type": ["null", "string"]},
    ],
}


def run(folder: Path) -> Iterator[Result]:
    """A change of one ledger, and the parsing of a snapshot, in milliseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    info = ManagedLedgerInfo(ledgers=tuple(map(_ledger, range(LEDGERS))))
    packed = pack_managed_ledger_info(info)
    aborted = {TransactionId(1, i): EntryPosition(7 + i // 1000, i % 1000) for i in range(ABORTED)}
    snapshot = pack_snapshot(BufferSnapshot(stable_position=EntryPosition(900, 1), aborted=aborted), TOPIC)
    schema = fastavro.parse_schema(SNAPSHOT_SCHEMA)
    path = folder / "records.db"
    path.unlink(missing_ok=True)
    store = SqliteStore(f"sqlite:{path}", create=True)
    records = ManagedLedgerRecords(store)
    records.write(TOPIC, info, None)

    def change(before: ManagedLedgerInfo) -> ManagedLedgerInfo:
        last = before.ledgers[-1]
        return before.with_ledger(replace(last, info=replace(last.info, size=(last.info.size or 0) + 1)))

    with one_core():
        ours = _median_ms(lambda: records.update(TOPIC, change))
        theirs = _median_ms(
            lambda: managed_ledger_pb2.ManagedLedgerInfo.FromString(packed).SerializeToString()
        )
        name = f"change of a record of {LEDGERS:,} ledgers, ms"
        yield Result(
            name=name, ours=f"{ours:.0f}", peer=f"protobuf {theirs:.0f}", ratio=ours, limit=20.0, at_most=True
        )
        ours = _median_ms(lambda: parse_snapshot(snapshot, TOPIC))
        theirs = _median_ms(lambda: fastavro.schemaless_reader(io.BytesIO(snapshot), schema, None))
        name = f"snapshot of {ABORTED:,} aborted transactions, ms"
        yield Result(
            name=name,
            ours=f"{ours:.0f}",
            peer=f"fastavro {theirs:.0f}",
            ratio=ours,
            limit=100.0,
            at_most=True,
        )
    store.close()


def _ledger(number: int) -> LedgerRecord:
    context = OffloadContext(uuid=UUID(int=number), complete=True, driver=DRIVER)
    return LedgerRecord(info=LedgerInfo(ledger_id=number, entries=1000, size=1 << 20), context=context)


def _median_ms(call: Callable[[], object]) -> float:
    """Milliseconds of a call, the median of some; the first one is not counted."""
    call()
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds)
