"""Objects of ours in the place of those that a broker wrote: out of a hot tier, as users offload, filtered or not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from entries import read_object, read_whole
from live.broker import TopicLedger
from mapfiles import lay_out_mapfile, mapfile

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import FilterMode, FilterRecord
from offload_core.reading.transaction_buffers import TransactionBuffer
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.offload import LedgerOffloader, OffloadedLedger
from offload_core.writing.offload_filters import ChosenFilter, FilterRun
from offload_core.writing.transaction_filter import TransactionOffloadFilter
from offload_hooks.filters import OffloadFilter, SettledTransactions
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerReader, LedgerStatus
from pulsar_offload import open_tier, scan

PART_BYTES = 5 << 20
"""The smallest part that S3 takes."""

Payloads = Mapping[int, Sequence[bytes]]
"""Entries by their ledgers, in order."""


class Renumbered:
    """A ledger of our hot tier under a broker's ledger id."""

    def __init__(self, reader: LedgerReader, ledger_id: int) -> None:
        self._reader = reader
        self.ledger_id = ledger_id

    def status(self) -> LedgerStatus:
        return replace(self._reader.status(), ledger_id=self.ledger_id)

    def read(self, first: int, last: int, max_bytes: int = DEFAULT_READ_BYTES) -> EntryBatch:
        return self._reader.read(first, last, max_bytes)

    def close(self) -> None:
        self._reader.close()


def keys_of(ledgers: Sequence[TopicLedger]) -> list[ObjectKey]:
    """The objects of ledgers that were offloaded."""
    return [
        ObjectKey(folder="", uuid=ledger.uuid, ledger_id=ledger.ledger_id, is_index=False)
        for ledger in ledgers
        if ledger.uuid is not None
    ]


def offload_in_its_place(
    tier: Tier, key: ObjectKey, hot: FileLedgerStore, filter_run: FilterRun | None = None
) -> OffloadedLedger:
    """Delete the broker's objects; put their entries into a ledger of the hot tier, and offload that."""
    data, index = read_whole(tier, key.data_key), read_whole(tier, key.index_key)
    names = {
        name: value
        for name, value in tier.stat(key.data_key).user_metadata.items()
        if name in ("managedledgername", "pulsarclustername")
    }
    tier.delete([key.data_key, key.index_key])
    writer = hot.create({})
    writer.append_batch([payload for _, _, payload in read_object(data, index, key)])
    writer.close()
    assert key.ledger_id is not None
    offloader = LedgerOffloader(tier, max_block_bytes=PART_BYTES)
    with closing(Renumbered(hot.open(writer.ledger_id), key.ledger_id)) as reader:
        return offloader.offload(reader, key.uuid, names, filter_run=filter_run)


# --- filtered ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadTopic:
    """A topic whose transactions are settled by reading these entries: see `FilteredTopic`."""

    name: str
    payloads: Payloads

    def settle(self) -> SettledTransactions:
        buffer = TransactionBuffer()
        for ledger_id, payloads in self.payloads.items():
            buffer.add(ledger_id, EntryBatch.of(0, payloads))
        stable = buffer.stable_position
        return SettledTransactions(
            stop=(0, 0) if stable is None else (stable.ledger_id, stable.entry_id + 1),
            aborted=frozenset(buffer.aborted),
            waits_for="the end of a transaction",
        )


def run_over(
    ledger_id: int,
    payloads: Payloads,
    chosen: OffloadFilter | None = None,
    mode: FilterMode = FilterMode.TOMBSTONE,
) -> FilterRun | None:
    """`chosen`, or `TransactionOffloadFilter`, at work on a ledger, if it takes the whole ledger already."""
    name = "transactions" if chosen is None else "of-the-tests"
    made = ChosenFilter(name=name, mode=mode, filter=chosen or TransactionOffloadFilter())
    run = made.open(ReadTopic("tests", payloads))
    last = EntryPosition(ledger_id, len(payloads[ledger_id]) - 1)
    return run if run is not None and run.takes(last) else None


def entries_in_objects(tier: Tier, keys: Sequence[ObjectKey]) -> dict[int, list[bytes]]:
    """All entries of these objects."""
    found: dict[int, list[bytes]] = defaultdict(list)
    for key in keys:
        for ledger_id, _, payload in read_object(
            read_whole(tier, key.data_key), read_whole(tier, key.index_key), key
        ):
            found[ledger_id].append(payload)
    return dict(found)


def filter_objects(
    tier: Tier,
    keys: Sequence[ObjectKey],
    folder: Path,
    chosen: OffloadFilter | None = None,
    mode: FilterMode = FilterMode.TOMBSTONE,
) -> dict[int, FilterRecord]:
    """Filter what a broker offloaded as far as its transactions are settled; what the filter did, by ledger."""
    payloads = entries_in_objects(tier, keys)
    records = {}
    with closing(FileLedgerStore(folder, sync="never")) as hot:
        for key in keys:
            assert key.ledger_id is not None
            run = run_over(key.ledger_id, payloads, chosen, mode)
            if run is not None:
                offload_in_its_place(tier, key, hot, run)
                records[key.ledger_id] = run.record()
    return records


def filter_mapfiles(root: Path, topic: str, ledgers: Sequence[TopicLedger]) -> dict[int, FilterRecord]:
    """The same of MapFiles under `root`."""
    payloads: dict[int, list[bytes]] = defaultdict(list)
    with open_tier(root) as tier:
        for row in scan(tier, topic, level="entries").to_table().to_pylist():
            payloads[row["__ledgerId"]].append(row["value"])
    records = {}
    for ledger in ledgers:
        run = run_over(ledger.ledger_id, payloads)
        if run is None:
            continue
        made = run.apply(ledger.ledger_id, EntryBatch.of(0, payloads[ledger.ledger_id]))
        run.note(made, made.stop_entry_id)
        namespace, _, name = topic.removeprefix("persistent://").rpartition("/")
        written = mapfile(
            [made.data[a:b].tobytes() for a, b in pairwise(made.offsets.tolist())],
            ledger_id=ledger.ledger_id,
            managed_ledger=f"{namespace}/persistent/{name}",
        )
        assert ledger.uuid is not None
        lay_out_mapfile(root, replace(written, key=replace(written.key, uuid=ledger.uuid)))
        records[ledger.ledger_id] = run.record()
    return records
