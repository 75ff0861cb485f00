"""Tiers and records of a rollback as commands are given them, and what they hold afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from records import closed, managed_ledger, still_open
from rollback_topics import NAMELESS, in_one_object, in_segments, put_segment, put_whole
from tiers import MANAGED_LEDGER, TOPIC, put, uuid_of

from offload_core.metadata import (
    ManagedLedgerInfo,
    ManagedLedgerRecords,
    pack_managed_ledger_info,
)
from offload_core.metadata.sqlite import SqliteStore
from offload_core.tier import Tier, open_store


@contextmanager
def streaming_tier(tmp_path: Path) -> Iterator[Tier]:
    """Objects 1: ledgers 5 and 6. 2: ledger 7. 3: half of one. 4: PIP-17 of ledger 8. 9: somebody else's."""
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
        known = ManagedLedgerRecords(store).read(MANAGED_LEDGER)
    assert known is not None
    return known.info


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
