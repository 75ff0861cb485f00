"""The conformance suite of ledger stores finds stores that are wrong in one way, by the case that one would expect."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from functools import partial

import pytest

from offload_hooks.errors import RangeError
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, WritableLedgerStoreConformance
from offload_hooks.testing.ledger_cases.base import written
from offload_hooks.testing.memory_ledgers import MemoryLedgerReader, MemoryLedgerWriter


class GivesIdsAgain(MemoryLedgerStore):
    def create(self, custom_metadata):
        self.shared.ids = itertools.count(max(self.shared.ledgers, default=-1) + 1)
        return super().create(custom_metadata)


class ForgetsMetadata(MemoryLedgerStore):
    def create(self, custom_metadata):
        del custom_metadata
        return super().create({})


class LeavesTheWriterAlone(MemoryLedgerStore):
    def recover(self, ledger_id, accept_loss=False):
        recovered = super().recover(ledger_id, accept_loss)
        self.shared.find(ledger_id).fenced = False
        return recovered


class LeavesTheWriterOfADeletedLedgerAlone(MemoryLedgerStore):
    def delete(self, ledger_id):
        ledger = self.shared.ledgers.get(ledger_id)
        deleted = super().delete(ledger_id)
        if ledger is not None:
            ledger.fenced = False
        return deleted


class DropsTheLastEntry(MemoryLedgerStore):
    def recover(self, ledger_id, accept_loss=False):
        with suppress(IndexError):
            self.shared.find(ledger_id).entries.pop()
        return super().recover(ledger_id, accept_loss)


class RecoversAnew(MemoryLedgerStore):
    def recover(self, ledger_id, accept_loss=False):
        ledger = self.shared.find(ledger_id)
        if ledger.sealed:
            ledger.entries.append(b"")
        return super().recover(ledger_id, accept_loss)


class ListsAsItComes(MemoryLedgerStore):
    def ledger_ids(self):
        return sorted(self.shared.ledgers, key=str)


class SealsNothing(MemoryLedgerStore):
    def create(self, custom_metadata):
        writer = super().create(custom_metadata)
        close = writer.close

        def without_sealing():
            close()
            self.shared.find(writer.ledger_id).sealed = False
            return writer.status

        writer.close = without_sealing
        return writer


class WriterThat(MemoryLedgerStore):
    """A store whose writers are of another class."""

    writer: type[MemoryLedgerWriter]

    def create(self, custom_metadata):
        ledger_id = super().create(custom_metadata).ledger_id
        return self.writer(self.shared.find(ledger_id), self)


class KeepsTheCallersBytes(WriterThat):
    class writer(MemoryLedgerWriter):  # noqa: N801
        def append_batch(self, payloads):
            first = super().append_batch(payloads)
            self._ledger.entries[first:] = payloads
            return first


class MixesBatches(WriterThat):
    class writer(MemoryLedgerWriter):  # noqa: N801
        def append_batch(self, payloads):
            first = super().append_batch(payloads[:1])
            for payload in payloads[1:]:
                time.sleep(0.001)
                super().append_batch([payload])
            return first


class ReaderThat(MemoryLedgerStore):
    """A store whose readers are of another class."""

    reader: type[MemoryLedgerReader]

    def open(self, ledger_id):
        return self.reader(ledger_id, self)


class ReadsWhatThereIs(ReaderThat):
    class reader(MemoryLedgerReader):  # noqa: N801
        def read(self, first_entry_id, last_entry_id, max_bytes=1 << 20):
            count = self.status().entry_count
            if first_entry_id >= count:
                raise RangeError("behind the end", ledger_id=self.ledger_id)
            return super().read(first_entry_id, min(last_entry_id, count - 1), max_bytes)


class ReadsWithoutLimit(ReaderThat):
    class reader(MemoryLedgerReader):  # noqa: N801
        def read(self, first_entry_id, last_entry_id, max_bytes=1 << 20):
            return super().read(first_entry_id, last_entry_id, max(max_bytes, 1 << 20))


class LooksOnce(ReaderThat):
    class reader(MemoryLedgerReader):  # noqa: N801
        def __init__(self, ledger_id, store):
            self._first = None
            super().__init__(ledger_id, store)

        def status(self):
            self._first = self._first or super().status()
            return self._first


FAULTS = {
    GivesIdsAgain: ("test_ids_ascend_and_are_never_given_again", {}),
    ForgetsMetadata: ("test_a_new_ledger_is_open_and_empty", {}),
    LeavesTheWriterAlone: ("test_a_writer_is_fenced_by_recovery", {"case_by": "another"}),
    LeavesTheWriterOfADeletedLedgerAlone: ("test_a_writer_is_fenced_by_deletion", {"case_by": "another"}),
    DropsTheLastEntry: ("test_recovery_seals_what_was_acknowledged", {"case_count": 100}),
    RecoversAnew: ("test_recovery_of_a_sealed_ledger_changes_nothing", {}),
    ListsAsItComes: ("test_a_deleted_ledger_is_not_listed", {}),
    SealsNothing: ("test_closing_seals", {"case_count": 1}),
    KeepsTheCallersBytes: ("test_all_kinds_of_bytes_are_taken", {}),
    MixesBatches: ("test_batches_of_many_threads_stay_together", {}),
    ReadsWhatThereIs: ("test_no_ledger_has_a_range", {"case_first": 0, "case_last": 300}),
    ReadsWithoutLimit: ("test_a_batch_has_no_more_bytes_than_are_wanted", {}),
    LooksOnce: ("test_a_reader_sees_each_entry_once_it_is_acknowledged", {}),
}


def run(kind, case, parameters):
    shared = MemoryLedgers()
    method = getattr(WritableLedgerStoreConformance(), case)
    taken = method.__code__.co_varnames[: method.__code__.co_argcount]
    stores = {name: kind(shared) for name in ("store", "other") if name in taken}
    if "make_ledger" in taken:
        parameters = parameters | {"make_ledger": partial(make_ledger, stores["store"])}
    method(**stores, **parameters)


def make_ledger(store, entries):
    writer = written(store, entries)
    writer.close()
    return writer.ledger_id


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
def test_a_planted_fault_is_found(kind):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(kind, *FAULTS[kind])
