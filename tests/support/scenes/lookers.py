"""A tier with objects of all kinds and faults, and what commands make of it, whoever looks at the objects."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from damage.scenes import FOLLOWING, NOW_MS, PAYLOADS, closed_ledger, first_segment, second_segment
from entries import pip17_object
from managed_ledgers import Audit
from mapfiles import lay_out_mapfile, mapfile
from records import copied
from scenes.garbage import clock
from tiers import MANAGED_LEDGER, MODIFIED_AT, Names, lay_out, uuid_of

from offload_core.maintenance.gc import Collection, Scope
from offload_core.maintenance.recover import recover_records
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue import Records
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier, open_store
from offload_hooks.errors import OffloadError
from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.testing import MemoryMetadataStore
from offload_hooks.values import ListedObject, ObjectStat
from pulsar_offload import TierReader

LEDGERS = 10
GONE = UUID("00000000-0000-4000-8000-0000000000ff")


class ListsMore(Tier):
    """A tier whose listing, here, has a pair that is gone when anybody looks at it; it notes who is looked at here."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.looked_at: list[str] = []

    def stat(self, key: str) -> ObjectStat:
        """As ever."""
        self.looked_at.append(key)
        return super().stat(key)

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """As ever."""
        self.looked_at.append(key)
        return super().read_range(key, offset, length)

    def list_objects(self, prefix: str = "", start_after: str = "") -> Iterator[ListedObject]:
        """All that there is, and the pair."""
        found = list(super().list_objects(prefix, start_after))
        for name in (f"{GONE}-ledger-9", f"{GONE}-ledger-9-index"):
            found.append(ListedObject(key=name, size_bytes=10, modified_at=MODIFIED_AT))
        return iter(sorted(found, key=lambda each: each.key))


def lay_out_world(root: Path) -> None:
    """PIP-17, streaming and MapFiles; copies twice, of another cluster, damaged, halves, and some nobody needs."""
    for number in range(LEDGERS):
        written = pip17_object(PAYLOADS, ledger_id=100 + number, max_block_bytes=1000)
        lay_out(root, written, attempt=number)
    again = pip17_object(PAYLOADS, ledger_id=100)
    lay_out(root, again, attempt=20)
    lay_out(root, replace(again, index=again.index[:20]), attempt=21)
    lay_out(root, replace(again, data=again.data[:-1]), attempt=22)
    lay_out(root, again, attempt=23, parts=["data"])
    lay_out(root, again, attempt=24, parts=["index"])
    lay_out(root, again, attempt=25, names=Names(cluster="west"))
    lay_out(root, again, attempt=26, names=Names(managed_ledger="acme/cold/persistent/deleted"))
    lay_out(root, again, attempt=27, names=Names(managed_ledger=None))
    segments = Names(managed_ledger="acme/cold/persistent/segments")
    lay_out(root, first_segment(), attempt=28, names=segments)
    lay_out(root, second_segment(), attempt=29, names=segments)
    lay_out_mapfile(root, mapfile(FOLLOWING, ledger_id=5, managed_ledger="acme/cold/persistent/maps"))
    (root / "else").write_bytes(b"no object of ours")
    for path in root.rglob("*"):
        os.utime(path, (MODIFIED_AT.timestamp(), MODIFIED_AT.timestamp()))


def world(root: Path, **options: Any) -> ListsMore:
    """The tier, opened."""
    with open_store(root, **options) as tier:
        assert tier.spec is not None
        return ListsMore.open(tier.spec)


def write_record(tier: Tier, store: WritableMetadataStore) -> None:
    """Record the topic: of its ledgers the first copies."""
    place = tier_record(tier)
    ledgers = [
        closed_ledger(100 + number, PAYLOADS, copied(uuid_of(number), driver=place))
        for number in range(LEDGERS)
    ]
    ManagedLedgerRecords(store).write(MANAGED_LEDGER, ManagedLedgerInfo(ledgers=tuple(ledgers)), None)


def open_records(tier: Tier) -> AbstractContextManager[Records]:
    """The same, in memory."""
    store = MemoryMetadataStore()
    write_record(tier, store)
    return nullcontext(StoreRecords(store))


# --- commands ------------------------------------------------------------------------------------


def ls(tier: Tier, executor: Executor | None) -> object:
    """All ledgers and strays."""
    counts: list[int] = []
    with LedgerSurvey() as survey:
        survey.fill(tier, executor=executor, listener=counts.append)
        return list(survey.ledgers()), list(survey.strays()), counts[-1:]


def report(tier: Tier, executor: Executor | None) -> object:
    """The catalogue of a page."""
    return TierReader(tier).catalogue(executor=executor)


def verify(tier: Tier, executor: Executor | None) -> object:
    """All findings, and the summary."""
    given = partial(open_records, tier)
    verification = Verification(tier, records=given, executor=executor, now_ms=lambda: NOW_MS)
    return list(verification), told(verification.summary)


def gc(tier: Tier, executor: Executor | None) -> object:
    """What nobody needs."""
    collection = collected(tier, executor)
    found = [(each.garbage.key, each.garbage.kind, each.is_deleted) for each in collection.report()]
    return found, told(collection.summary)


def gc_yes(tier: Tier, executor: Executor | None) -> object:
    """The same, deleted; and what the audit log tells."""
    collection, log = collected(tier, executor), Audit()
    found = [(each.garbage.key, each.garbage.kind, each.is_deleted) for each in collection.collect(log)]
    left = [each.key for each in Tier.list_objects(tier)]
    return found, told(collection.summary), sorted(map(str, log.changes)), left


def recover(tier: Tier, executor: Executor | None) -> object:
    """The records of all topics."""
    return list(recover_records(tier, None, None, cluster="east", executor=executor))


Command = Callable[[Tier, Executor | None], Any]
COMMANDS: list[Command] = [ls, report, verify, gc, gc_yes, recover]


def collected(tier: Tier, executor: Executor | None) -> Collection:
    """A collection, three days later."""
    later = clock(MODIFIED_AT + timedelta(days=3))
    return Collection(tier, partial(open_records, tier), Scope(now_ms=later), executor=executor)


def told(summary: Any) -> object:
    """A summary, with the words of its failures."""
    return replace(summary, failures=[]), [str(each) for each in summary.failures]


def assert_same(command: Command, executor: Executor, root: Path) -> None:
    """A command gives the same by this process and by the executor, each on a copy of the tier."""
    told = []
    for number, by in enumerate((None, executor)):
        place = root.parent / str(number) / "tier"
        shutil.copytree(root, place)
        told.append(command(world(place), by))
        place.parent.rename(place.parent.with_suffix(".done"))
    assert str(told[0]).replace("/0/tier", "/1/tier") == str(told[1])


def outcome(command: Command, tier: Tier, executor: Executor | None) -> object:
    """What a command gives, or its error."""
    try:
        return command(tier, executor)
    except OffloadError as error:
        return type(error), str(error)
