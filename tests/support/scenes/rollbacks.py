"""Topics with streaming segments, in a tier and its records, for tests of the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from entries import LedgerPart, pip17_object, streaming_object
from records import closed, copied, managed_ledger, segment, still_open
from tiers import MANAGED_LEDGER, TOPIC, Names, put, put_object, uuid_of

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.records import (
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    pack_managed_ledger_info,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.tier import Tier, open_store

NAMED = Names(managed_ledger=MANAGED_LEDGER, cluster=None)
"""As this program writes them."""
NAMELESS = Names(managed_ledger=None, cluster=None)
ORDERS = parse_topic(TOPIC)


def put_segment(tier: Tier, number: int, *shares: tuple[int, int, int], **options: object) -> ObjectKey:
    """A streaming object of these shares: ledger, first entry, and how many."""
    parts = [
        LedgerPart(ledger_id=ledger_id, blocks=[[b"x"] * count], first_entry_id=first)
        for ledger_id, first, count in shares
    ]
    return put_object(tier, streaming_object(parts), uuid_of(number), **{"names": NAMED} | options)


def put_whole(tier: Tier, number: int, ledger_id: int, entries: int) -> ObjectKey:
    """A PIP-17 object."""
    written = pip17_object([b"x"] * entries, ledger_id=ledger_id)
    return put_object(tier, written, uuid_of(number), names=NAMED)


def in_segments(
    ledger_id: int, entries: int, *ends: tuple[int, int], complete: bool = True, gone: bool = False
):
    """A closed ledger in segments: their uuids' numbers and last entries."""
    shares = [segment(uuid_of(number), end) for number, end in ends]
    context = OffloadContext.of_segments(shares, complete=complete, bookkeeper_deleted=gone)
    return closed(ledger_id, entries, context)


def in_one_object(ledger_id: int, entries: int, number: int, *, gone: bool = True) -> LedgerRecord:
    """A closed ledger in one object of this uuid's number."""
    return closed(ledger_id, entries, copied(uuid_of(number), bookkeeper_deleted=gone))


def topic(*ledgers: LedgerRecord) -> Mapping[TopicName, ManagedLedgerInfo]:
    """The record of the topic that all of this is about."""
    return {ORDERS: managed_ledger(*ledgers)}


def keys(tier: Tier) -> set[str]:
    """All that is in a tier."""
    return {listed.key for listed in tier.list_objects()}


# --- Tiers and records of a rollback as commands are given them, and what they hold afterwards.


@contextmanager
def streaming_tier(tmp_path: Path) -> Iterator[Tier]:
    """Objects 1: ledgers 5 and 6. 2: ledger 7. 3: half of one. 4: PIP-17 of ledger 8. 9: of another topic."""
    with open_store(tmp_path / "tier") as store:
        put_segment(store, 1, (5, 0, 3), (6, 0, 4))
        put_segment(store, 2, (7, 0, 2))
        put_segment(store, 3, (7, 0, 2), parts=["data"], names=NAMELESS)
        put_whole(store, 4, 8, 1)
        put(store, str(uuid_of(9)), b"a picture of a cat", {})
        yield store


def file_of(tmp_path: Path, info: ManagedLedgerInfo) -> str:
    path = tmp_path / "a-record"
    path.write_bytes(pack_managed_ledger_info(info))
    return f"{TOPIC}={path}"


def store_of(tmp_path: Path, info: ManagedLedgerInfo) -> str:
    url = f"sqlite:{tmp_path}/records.db"
    with closing(SqliteStore(url, create=True)) as store:
        ManagedLedgerRecords(store).write(MANAGED_LEDGER, info, None)
    return url


def info_in(url: str) -> ManagedLedgerInfo:
    with closing(SqliteStore(url)) as store:
        return ManagedLedgerRecords(store).read(MANAGED_LEDGER).info


MIXED = managed_ledger(
    in_segments(5, 3, (1, 2)),
    in_segments(6, 4, (1, 3)),
    in_segments(7, 2, (2, 1), gone=True),
    in_one_object(8, 1, 4),
    still_open(9),
)


HOT = managed_ledger(
    in_segments(5, 3, (1, 2)), in_segments(6, 4, (1, 3)), closed(7, 2), in_one_object(8, 1, 4)
)
