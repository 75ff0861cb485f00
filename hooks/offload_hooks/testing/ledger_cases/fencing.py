# ruff: noqa: D102 (the names of the cases state the promises)
"""Ledgers taken from their writers, by recovery and deletion."""

from __future__ import annotations

import pytest

from offload_hooks.errors import LedgerFencedError, UnknownLedgerError
from offload_hooks.ledger_stores import WritableLedgerStore
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase, all_of, payloads, refuses, written


class FencingCases(LedgerSuiteBase):
    """`recover` and `delete`."""

    @pytest.mark.parametrize("case_count", [0, 1, 100])
    def test_recovery_seals_what_was_acknowledged(
        self, store: WritableLedgerStore, other: WritableLedgerStore, case_count: int
    ) -> None:
        writer = written(store, payloads(case_count))
        recovered = other.recover(writer.ledger_id)
        assert (recovered.status.sealed, recovered.status.entry_count) == (True, case_count)
        assert recovered.lost_entry_count == 0
        assert store.open(writer.ledger_id).status() == recovered.status == other.verify(writer.ledger_id)
        assert all_of(store.open(writer.ledger_id)) == payloads(case_count)

    @pytest.mark.parametrize("case_by", ["another", "the same"])
    def test_a_writer_is_fenced_by_recovery(
        self, store: WritableLedgerStore, other: WritableLedgerStore, case_by: str
    ) -> None:
        writer = written(store, payloads(5))
        (other if case_by == "another" else store).recover(writer.ledger_id)
        for call in (
            lambda: writer.append(b"x"),
            lambda: writer.append_batch([b"x"]),
            writer.close,
            writer.sync,
        ):
            with refuses(LedgerFencedError, ledger_id=writer.ledger_id):
                call()
        assert all_of(other.open(writer.ledger_id)) == payloads(5)
        assert other.verify(writer.ledger_id).entry_count == 5

    def test_a_fenced_writer_is_fenced_whatever_it_does_first(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        for first in ("append", "sync", "close"):
            writer = written(store, payloads(5))
            other.recover(writer.ledger_id)
            with refuses(LedgerFencedError, ledger_id=writer.ledger_id):
                writer.append(b"x") if first == "append" else getattr(writer, first)()

    def test_recovery_again_changes_nothing(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = written(store, payloads(5))
        first = other.recover(writer.ledger_id)
        assert store.recover(writer.ledger_id) == other.recover(writer.ledger_id) == first

    def test_recovery_of_a_sealed_ledger_changes_nothing(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = written(store, payloads(5))
        status = writer.close()
        assert other.recover(writer.ledger_id).status == status
        assert writer.close() == status

    def test_readers_go_on_over_recovery(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = written(store, payloads(50))
        readers = [each.open(writer.ledger_id) for each in (store, other)]
        assert [reader.status().sealed for reader in readers] == [False, False]
        other.recover(writer.ledger_id)
        for reader in readers:
            assert reader.status().sealed
            assert all_of(reader) == payloads(50)

    def test_a_new_ledger_goes_on(self, store: WritableLedgerStore, other: WritableLedgerStore) -> None:
        old = written(store, payloads(5))
        other.recover(old.ledger_id)
        new = written(other, payloads(7))
        assert new.ledger_id > old.ledger_id
        assert new.append(b"x") == 7

    @pytest.mark.parametrize("case_state", ["open", "sealed", "recovered"])
    def test_a_deleted_ledger_is_gone(
        self, store: WritableLedgerStore, other: WritableLedgerStore, case_state: str
    ) -> None:
        writer = written(store, payloads(100))
        reader, others = store.open(writer.ledger_id), other.open(writer.ledger_id)
        others.read(0, 10)
        if case_state == "sealed":
            writer.close()
        elif case_state == "recovered":
            other.recover(writer.ledger_id)
        assert other.delete(writer.ledger_id) is True
        assert store.ledger_ids() == other.ledger_ids() == []
        assert store.delete(writer.ledger_id) is other.delete(writer.ledger_id) is False
        for call in (store.open, other.open, store.recover, other.verify):
            with refuses(UnknownLedgerError, ledger_id=writer.ledger_id):
                call(writer.ledger_id)
        for each in (reader, others):
            with refuses(UnknownLedgerError, ledger_id=writer.ledger_id):
                each.read(0, 99)
            with refuses(UnknownLedgerError, ledger_id=writer.ledger_id):
                each.status()

    @pytest.mark.parametrize("case_by", ["another", "the same"])
    def test_a_writer_is_fenced_by_deletion(
        self, store: WritableLedgerStore, other: WritableLedgerStore, case_by: str
    ) -> None:
        writer = written(store, payloads(5))
        assert (other if case_by == "another" else store).delete(writer.ledger_id)
        for call in (lambda: writer.append(b"x"), lambda: writer.append_batch([b"x"]), writer.close):
            with refuses(LedgerFencedError, ledger_id=writer.ledger_id):
                call()
        assert store.ledger_ids() == []

    def test_deleting_one_leaves_the_others(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writers = [written(store, payloads(10, seed)) for seed in range(3)]
        other.delete(writers[1].ledger_id)
        for seed in (0, 2):
            assert writers[seed].append(b"more") == 10
            assert all_of(other.open(writers[seed].ledger_id)) == [*payloads(10, seed), b"more"]
