"""A tier with objects of all kinds and faults, and what commands that inspect a tier give."""

import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from uuid import UUID

from damage.scenes import FOLLOWING, NOW_MS, PAYLOADS, closed_ledger, first_segment, second_segment
from entries import pip17_object
from mapfiles import lay_out_mapfile, mapfile
from records import copied
from scenes.garbage import clock
from tiers import MANAGED_LEDGER, MODIFIED_AT, Names, lay_out, uuid_of

from offload_core.maintenance.gc import Collection, Scope
from offload_core.maintenance.record_recovery import recover_records
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier, open_store
from offload_hooks.testing import MemoryMetadataStore
from offload_hooks.values import ListedObject
from pulsar_offload import TierReader

LEDGERS = 10
GONE = UUID("00000000-0000-4000-8000-0000000000ff")


class ListsMore(Tier):
    """A tier whose listing has a pair that is gone when it is inspected."""

    def list_objects(self, prefix="", start_after=""):
        """All objects, and the pair."""
        found = list(super().list_objects(prefix, start_after))
        for name in (f"{GONE}-ledger-9", f"{GONE}-ledger-9-index"):
            found.append(ListedObject(key=name, size_bytes=10, modified_at=MODIFIED_AT))
        return iter(sorted(found, key=lambda each: each.key))


def lay_out_world(root):
    """PIP-17, streaming and MapFiles; second copies, another cluster's, damaged ones, halves, and garbage."""
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


def world(root, **options):
    """The tier, opened."""
    with open_store(root, **options) as tier:
        assert tier.spec is not None
        return ListsMore.open(tier.spec)


def write_record(tier, store):
    """Record the topic: of its ledgers the first copies."""
    place = tier_record(tier)
    ledgers = [
        closed_ledger(100 + number, PAYLOADS, copied(uuid_of(number), driver=place))
        for number in range(LEDGERS)
    ]
    ManagedLedgerRecords(store).write(MANAGED_LEDGER, ManagedLedgerInfo(ledgers=tuple(ledgers)), None)


def open_records(tier):
    """The same, in memory."""
    store = MemoryMetadataStore()
    write_record(tier, store)
    return nullcontext(StoreRecords(store))


def ls(tier):
    """All ledgers and strays."""
    with LedgerSurvey() as survey:
        survey.fill(tier)
        return list(survey.ledgers()), list(survey.strays())


def report(tier):
    """The catalogue of a page."""
    return TierReader(tier).catalogue()


def verify(tier):
    """All findings, and the summary."""
    verification = Verification(tier, records=partial(open_records, tier), now_ms=lambda: NOW_MS)
    return list(verification), _with_failures(verification.summary)


def gc(tier):
    """The garbage, three days later."""
    later = Scope(now_ms=clock(MODIFIED_AT + timedelta(days=3)))
    collection = Collection(tier, partial(open_records, tier), later)
    found = [(each.garbage.key, each.garbage.kind) for each in collection.report()]
    return found, _with_failures(collection.summary)


def recover(tier):
    """The records of all topics."""
    return list(recover_records(tier, None, None, cluster="east"))


COMMANDS = [ls, report, verify, gc, recover]


def _with_failures(summary):
    """A summary, with the words of its failures."""
    return replace(summary, failures=[]), [str(each) for each in summary.failures]
