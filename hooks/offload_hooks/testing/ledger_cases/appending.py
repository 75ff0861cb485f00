# ruff: noqa: D102 (the names of the cases state the promises)
"""Creating ledgers, appending to them, sealing them."""

from __future__ import annotations

import time

import pytest

from offload_hooks.errors import LedgerClosedError, OptionError
from offload_hooks.ledger_stores import LedgerStatus, WritableLedgerStore
from offload_hooks.testing.content import content
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase, all_of, payloads, refuses, written

_METADATA = {
    "pulsar/managed-ledger": b"t/n/persistent/a",
    "empty": b"",
    "bytes": bytes(range(256)),
    "ü": b"1",
}


class AppendingCases(LedgerSuiteBase):
    """`create`, and all of `LedgerWriter`."""

    def test_the_description_is_complete(self, store: WritableLedgerStore) -> None:
        description = store.describe()
        assert description.name
        assert description.location
        assert description.max_entry_bytes >= 5 << 20

    def test_a_new_ledger_is_open_and_empty(self, store: WritableLedgerStore) -> None:
        before = time.time_ns() // 1_000_000
        writer = store.create(_METADATA)
        status = writer.status
        assert before <= status.created_at_ms <= time.time_ns() // 1_000_000
        assert status == LedgerStatus(
            ledger_id=writer.ledger_id,
            entry_count=0,
            size_bytes=0,
            sealed=False,
            created_at_ms=status.created_at_ms,
            custom_metadata=_METADATA,
        )
        assert store.open(writer.ledger_id).status() == status

    def test_ids_ascend_and_are_never_given_again(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        ids = [each.create({}).ledger_id for each in (store, other, store, other)]
        assert store.delete(ids[-1])
        ids.append(store.create({}).ledger_id)
        assert ids == sorted(set(ids))
        assert ids[0] >= 0

    def test_metadata_that_is_too_large_is_refused(self, store: WritableLedgerStore) -> None:
        with refuses(OptionError):
            store.create({"large": bytes(1 << 20)})
        assert store.ledger_ids() == []

    def test_entries_get_dense_ids_from_0(self, store: WritableLedgerStore) -> None:
        writer = store.create({})
        assert [writer.append(payload) for payload in payloads(3)] == [0, 1, 2]
        assert writer.append_batch(payloads(10)) == 3
        assert writer.append(b"") == 13
        assert writer.append_batch([b"one"]) == 14

    def test_what_was_appended_is_read(self, store: WritableLedgerStore) -> None:
        entries = payloads(200)
        writer = store.create({})
        for payload in entries[:50]:
            writer.append(payload)
        writer.append_batch(entries[50:])
        status = store.open(writer.ledger_id).status()
        assert (status.entry_count, status.size_bytes) == (200, sum(map(len, entries)))
        assert writer.status == status
        assert all_of(store.open(writer.ledger_id)) == entries

    def test_all_kinds_of_bytes_are_taken(self, store: WritableLedgerStore) -> None:
        writer = store.create({})
        mutable = bytearray(b"bytearray")
        writer.append(mutable)
        writer.append(memoryview(b"-memoryview-")[1:-1])
        writer.append_batch([b"bytes", mutable, memoryview(b"view")])
        mutable[:] = b"different"
        expected = [b"bytearray", b"memoryview", b"bytes", b"bytearray", b"view"]
        assert all_of(store.open(writer.ledger_id)) == expected

    def test_what_was_read_can_be_appended(self, store: WritableLedgerStore) -> None:
        first, second = written(store, payloads(20)), written(store, [b"before"])
        assert second.append_batch(store.open(first.ledger_id).read(5, 14)) == 1
        assert all_of(store.open(second.ledger_id)) == [b"before", *payloads(20)[5:15]]

    def test_large_entries_are_taken(self, store: WritableLedgerStore) -> None:
        entries = [content(5 << 20, 1), b"small", content(3 << 20, 2)]
        writer = store.create({})
        writer.append(entries[0])
        writer.append_batch(entries[1:])
        assert all_of(store.open(writer.ledger_id)) == entries

    def test_an_entry_that_is_too_large_is_refused(self, store: WritableLedgerStore) -> None:
        large = bytes(store.describe().max_entry_bytes + 1)
        writer = written(store, [b"before"])
        with refuses(OptionError, ledger_id=writer.ledger_id):
            writer.append(large)
        with refuses(OptionError, ledger_id=writer.ledger_id):
            writer.append_batch([b"small", large])
        assert writer.append(b"after") == 1
        assert all_of(store.open(writer.ledger_id)) == [b"before", b"after"]

    def test_an_empty_batch_is_refused(self, store: WritableLedgerStore) -> None:
        writer = store.create({})
        with refuses(OptionError, ledger_id=writer.ledger_id):
            writer.append_batch([])

    def test_many_ledgers_are_written_in_turn(self, store: WritableLedgerStore) -> None:
        writers = [store.create({}) for _ in range(20)]
        for round_ in range(5):
            for i, writer in enumerate(writers):
                assert writer.append(b"%d-%d" % (i, round_)) == round_
        for i, writer in enumerate(writers):
            assert all_of(store.open(writer.ledger_id)) == [b"%d-%d" % (i, n) for n in range(5)]

    @pytest.mark.parametrize("case_count", [0, 1, 100])
    def test_closing_seals(
        self, store: WritableLedgerStore, other: WritableLedgerStore, case_count: int
    ) -> None:
        writer = written(store, payloads(case_count))
        reader = other.open(writer.ledger_id)
        assert not reader.status().sealed
        status = writer.close()
        assert (status.sealed, status.entry_count) == (True, case_count)
        for again in (writer.status, writer.close(), reader.status(), other.open(writer.ledger_id).status()):
            assert again == status
        assert other.verify(writer.ledger_id) == status
        assert all_of(reader) == payloads(case_count)

    def test_nothing_is_appended_to_a_sealed_ledger(self, store: WritableLedgerStore) -> None:
        writer = written(store, payloads(3))
        writer.close()
        for call in (lambda: writer.append(b"x"), lambda: writer.append_batch([b"x"]), writer.sync):
            with refuses(LedgerClosedError, ledger_id=writer.ledger_id):
                call()
        assert all_of(store.open(writer.ledger_id)) == payloads(3)

    def test_syncing_changes_nothing(self, store: WritableLedgerStore) -> None:
        writer = store.create({})
        for i in range(3):
            writer.sync()
            assert writer.append(b"x") == i
            writer.sync()
        assert writer.status.entry_count == 3

    def test_closing_the_store_keeps_open_ledgers(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = written(store, payloads(10))
        store.close()
        store.close()
        with refuses(LedgerClosedError):
            writer.append(b"x")
        with refuses(LedgerClosedError):
            store.create({})
        reader = other.open(writer.ledger_id)
        assert not reader.status().sealed
        assert all_of(reader) == payloads(10)
