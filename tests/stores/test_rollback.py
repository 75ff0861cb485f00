"""The way back on each store: our segments beside Pulsar's objects, listed, planned, released and deleted."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from uuid import UUID

import pytest
from records import managed_ledger, segment
from scenes.offered import NAMES, Part, begin_of, offer, offloader_of, plain_object
from scenes.rollbacks import keys
from tiers import MANAGED_LEDGER, put_broker_objects

from offload_core.maintenance.rollback import (
    Allowed,
    Need,
    Verdict,
    delete_judged,
    judge_tier,
    list_streaming,
    plan_rollback,
    release_recorded,
)
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import LedgerRecord, OffloadContext
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.writing.audit import FileAuditLog

pytestmark = pytest.mark.sampled(6)

SOON_S = 120
OTHER = "acme/cold/persistent/others"
PARTS = [
    Part(ledger_id=4, payloads=[b"one", b"", b"three"]),
    Part(ledger_id=5, payloads=[b"of a second ledger"] * 100),
]


def offloaded(tier, uuid):
    """A segment of both ledgers by our offloader, and what their records say then."""
    with offloader_of(tier, max_block_bytes=6 << 20) as offloader:
        handle = offloader.open_segment(uuid, begin_of(PARTS), NAMES)
        for part in PARTS:
            offer(handle, part)
        handle.close()
        handle.result().result(SOON_S)
    shares = [segment(uuid, part.stop_entry_id - 1, driver=tier_record(tier)) for part in PARTS]
    contexts = [OffloadContext.of_segments([share], complete=True) for share in shares]
    return [
        LedgerRecord(info=part.info, context=context) for part, context in zip(PARTS, contexts, strict=True)
    ]


def test_our_segments_go_and_pulsars_objects_stay(store, tmp_path):
    with store.open() as tier, closing(SqliteStore(f"sqlite:{tmp_path}/records.db", create=True)) as metadata:
        put_broker_objects(tier, ["json"])
        pulsars = keys(tier)
        records = ManagedLedgerRecords(metadata)
        records.write(MANAGED_LEDGER, managed_ledger(*offloaded(tier, UUID(int=1))), None)
        records.write(OTHER, managed_ledger(*map(gone, offloaded(tier, UUID(int=2)))), None)

        least = tier.describe().capabilities.min_block_bytes
        size_bytes = sum(map(len, plain_object(PARTS, max_block_bytes=6 << 20, min_block_bytes=least)))
        listed = list_streaming(tier).objects
        assert [(each.state, each.size_bytes, each.ledger_ids) for each in listed] == [
            ("complete", size_bytes, (4, 5))
        ] * 2
        dry = release_recorded(records, [], dry_run=True)
        plan = plan_rollback(tier, dry.infos)
        assert [each.entries for each in plan.of(Need.ONLY_COPY)] == [3, 100]
        assert len([each for topic in plan.topics for each in topic.streamed]) == 2
        assert plan.of(Need.ONLY_COPY)[0].problems == ()

        judged = judge_tier(tier, lambda: release_recorded(records, [], dry_run=False).infos)
        assert [each.verdict for each in judged] == [Verdict.FREE, Verdict.NEEDED]
        audit = FileAuditLog(tmp_path / "audit")
        for _ in range(2):
            delete_judged(tier, judged, audit, allowed=Allowed(recorded=False))
            assert keys(tier) == pulsars | {str(UUID(int=2)), f"{UUID(int=2)}-index"}
        if tier.describe().capabilities.stale_uploads:
            assert list(tier.list_uploads()) == []
        assert judge_tier(tier, lambda: dry.infos) == judged[1:]


def gone(ledger):
    assert ledger.context is not None
    return replace(ledger, context=replace(ledger.context, bookkeeper_deleted=True))
