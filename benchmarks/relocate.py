"""Moving: copies with all that is verified of them, against copying the same bytes by the same drivers and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from entries import pip17_object
from managed_ledgers import NAME, Audit, Clock
from records import closed, copied, managed_ledger
from tiers import lay_out, uuid_of

from benchmarks.material import message_entries
from benchmarks.measure import Result, seconds_side_by_side
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.compression import Compression
from offload_core.maintenance.relocate import DEFAULT_PARALLEL, Mover, Wanted, make_moves, plan_topic
from offload_core.maintenance.relocate.byte_copies import PART_BYTES, PARTS_AT_ONCE
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier, open_store, upload_blocks
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_hooks.bounded_map import bounded_map
from offload_hooks.testing import MemoryMetadataStore

LEDGER_BYTES = 64 << 20
LEDGERS = 8


def run(folder: Path) -> Iterator[Result]:
    """A ratio each: of the seconds of copies alone to those of moves, as many at once, on all cores."""
    with TemporaryDirectory(dir=folder, prefix="relocate-") as place:
        yield from _ratios(Path(place))


def _ratios(folder: Path) -> Iterator[Result]:
    root = folder / "tier"
    entries = message_entries(1024, 100, Compression.LZ4)
    written = pip17_object(entries * (LEDGER_BYTES // sum(map(len, entries)) + 1), max_block_bytes=16 << 20)
    entry_count = len(written.entries)
    for number in range(LEDGERS):
        lay_out(root, replace(written, key=replace(written.key, ledger_id=number)), attempt=number)
    total = LEDGERS * len(written.data)
    with open_store(root) as source:
        for format_ in (None, ObjectFormat.STREAMING):

            def move(format_: ObjectFormat | None = format_) -> None:
                with TemporaryDirectory(dir=folder) as target:
                    _move(source, Path(target), entry_count, format_)

            def copy() -> None:
                with TemporaryDirectory(dir=folder) as target:
                    _copy(source, Path(target))

            ours, peer, ratio = seconds_side_by_side(move, copy, rounds=3)
            yield Result(
                name=f"moved {'as it is' if format_ is None else 'into ' + format_.value}, and verified",
                ours=f"{total / ours / 1e6:,.0f} MB/s",
                peer=f"copy: {total / peer / 1e6:,.0f} MB/s",
                ratio=ratio,
                limit=0.1 if format_ is None else 0.05,
            )


def _move(source: Tier, folder: Path, entry_count: int, format_: ObjectFormat | None) -> None:
    records = ManagedLedgerRecords(MemoryMetadataStore())
    ledgers = [closed(number, entry_count, copied(uuid_of(number), driver=None)) for number in range(LEDGERS)]
    info = managed_ledger(*ledgers)
    records.write(NAME, info, None)
    with open_store(folder) as target:
        wanted = Wanted(source=tier_record(source), target=tier_record(target), format=format_)
        book, audit = RecordRegistry(records, Clock()), Audit()
        mover = Mover(book, source, target, audit, now_ms=Clock())  # type: ignore[arg-type]
        plan = plan_topic(topic_of_managed_ledger(NAME), info, wanted)
        for outcome in make_moves(mover, [plan]):
            if outcome.error is not None:
                raise outcome.error


def _copy(source: Tier, folder: Path) -> None:
    with open_store(folder) as target:

        def copy(key: str) -> None:
            stat = source.stat(key)
            upload_blocks(
                target,
                key,
                (
                    source.read_range(key, offset, min(PART_BYTES, stat.size_bytes - offset))
                    for offset in range(0, stat.size_bytes, PART_BYTES)
                ),
                block_bytes=min(PART_BYTES, stat.size_bytes),
                total_bytes=stat.size_bytes,
                user_metadata=stat.user_metadata,
                parts_in_flight=PARTS_AT_ONCE,
            )

        keys = [listed.key for listed in source.list_objects()]
        for _ in bounded_map(copy, keys, at_once=DEFAULT_PARALLEL, ahead=DEFAULT_PARALLEL, name="bench-copy"):
            pass
