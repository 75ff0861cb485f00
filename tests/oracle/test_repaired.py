"""Pulsar's classes read repaired objects: rebuilt indexes, and salvaged data where nothing is lost."""

from __future__ import annotations

from entries import LedgerPart, pip17_object
from managed_ledgers import Audit
from scenes.judged import contents, entries_of, entries_of_parts, new_ledger_id, store_object, store_segments
from stores import Store

from offload_core.format.codec.object_format import parse_key
from offload_core.maintenance.repair import Action, Repair
from offload_core.storage.clock import system_now_ms

AN_HOUR_MS = 3_600_000


def repaired(tier):
    """All is done that there is to do, an hour later."""
    work, lines = Repair(tier, now_ms=lambda: system_now_ms() + AN_HOUR_MS), Audit()
    return [work.do(each, lines) for each in work.plan() if each.changes]


def indexes_of(tier):
    return [each.key for each in tier.list_objects() if each.key.endswith("-index")]


def test_a_ledger_whose_index_was_lost(oracle, tmp_path):
    store, ledger_id = Store(name="local", url=str(tmp_path)), new_ledger_id()
    payloads = contents([0, 300, 5000, 1, 70_000, 12, 900], seed=5)
    attempt = store_object(store, pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=4000))
    with store.open() as tier:
        tier.delete(indexes_of(tier))
        assert [each.planned.choice.action for each in repaired(tier)] == [Action.REBUILD_INDEX]
    read = oracle.read(store, attempt, ledger_id, [(0, len(payloads) - 1), (2, 4)])
    expected = entries_of(ledger_id, payloads)
    assert read.entries == expected + expected[2:5]
    assert (read.last_add_confirmed, read.length) == (len(payloads) - 1, sum(map(len, payloads)))


def test_segments_whose_indexes_were_lost(oracle, tmp_path):
    store, ledger_id = Store(name="local", url=str(tmp_path)), new_ledger_id()
    payloads = contents([400, 20, 3000, 7, 90], seed=6)
    drawn = [[LedgerPart(ledger_id=ledger_id, blocks=[payloads[:2], payloads[2:]])]]
    with store.open() as tier:
        contexts = store_segments(store, drawn)
        tier.delete(indexes_of(tier))
        assert [each.planned.choice.action for each in repaired(tier)] == [Action.REBUILD_INDEX]
    read = oracle.read(store, contexts[ledger_id], ledger_id, [(0, len(payloads) - 1)])
    assert read.entries == entries_of_parts(drawn, ledger_id)


def test_what_was_saved_of_a_ledger_whose_padding_is_damaged(oracle, tmp_path):
    store, ledger_id = Store(name="local", url=str(tmp_path)), new_ledger_id()
    payloads = contents([900, 300, 500, 200, 800], seed=7)
    written = pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=1500)
    store_object(store, written)
    with store.open() as tier:
        (index,) = indexes_of(tier)
        key = index.removesuffix("-index")
        broken = bytearray(written.data)
        broken[1499] ^= 1
        tier.write_index(key, bytes(broken), user_metadata=tier.stat(key).user_metadata)
        (done,) = repaired(tier)
        saved = parse_key(done.planned.target or "")
    read = oracle.read(store, saved.uuid, ledger_id, [(0, len(payloads) - 1)])
    assert read.entries == entries_of(ledger_id, payloads)
