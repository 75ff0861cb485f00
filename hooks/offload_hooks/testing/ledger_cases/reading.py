# ruff: noqa: D102 (the names of the cases state the promises)
"""Reading ranges of entries: of any ledger, and of one that grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from offload_hooks.errors import LedgerClosedError, RangeError, UnknownLedgerError
from offload_hooks.ledger_stores import LedgerStore, SizedLedgerReader, WritableLedgerStore
from offload_hooks.testing.content import content
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase, all_of, payloads, refuses, written

MakeLedger = Callable[[Sequence[bytes]], int]

_COUNT = 300
_RANGES = {
    "all": (0, _COUNT - 1),
    "the first": (0, 0),
    "the last": (_COUNT - 1, _COUNT - 1),
    "some": (17, 205),
    "one": (100, 100),
    "an empty entry": (0, 0),
}
_NONE = {
    "negative": (-1, 5),
    "negative altogether": (-5, -1),
    "reversed": (5, 4),
    "past the end": (0, _COUNT),
    "after the end": (_COUNT, _COUNT),
    "far away": (1 << 60, 1 << 61),
}


class LedgerReadingCases(LedgerSuiteBase):
    """`open`, `verify`, `ledger_ids`, and all of `LedgerReader`."""

    @pytest.mark.parametrize(("case_first", "case_last"), _RANGES.values(), ids=_RANGES)
    def test_a_range_is_exact(
        self, store: LedgerStore, make_ledger: MakeLedger, case_first: int, case_last: int
    ) -> None:
        ledger_id = make_ledger(payloads(_COUNT))
        reader = store.open(ledger_id)
        assert reader.ledger_id == ledger_id
        batch = reader.read(case_first, case_last)
        assert (batch.first_entry_id, batch.stop_entry_id) == (case_first, case_last + 1)
        assert [bytes(entry) for entry in batch] == payloads(_COUNT)[case_first : case_last + 1]

    @pytest.mark.parametrize(("case_first", "case_last"), _NONE.values(), ids=_NONE)
    def test_no_ledger_has_a_range(
        self, store: LedgerStore, make_ledger: MakeLedger, case_first: int, case_last: int
    ) -> None:
        ledger_id = make_ledger(payloads(_COUNT))
        with refuses(RangeError, ledger_id=ledger_id):
            store.open(ledger_id).read(case_first, case_last)

    def test_the_status_is_that_of_all_entries(self, store: LedgerStore, make_ledger: MakeLedger) -> None:
        ledger_id = make_ledger(payloads(_COUNT))
        status = store.open(ledger_id).status()
        assert (status.ledger_id, status.entry_count) == (ledger_id, _COUNT)
        assert status.size_bytes == sum(map(len, payloads(_COUNT)))

    def test_sizes_are_exact_where_a_reader_tells_them(
        self, store: LedgerStore, make_ledger: MakeLedger
    ) -> None:
        ledger_id = make_ledger(payloads(_COUNT))
        reader = store.open(ledger_id)
        if isinstance(reader, SizedLedgerReader):
            for entry_id in (0, 1, 17, 100, _COUNT - 1, _COUNT):
                assert reader.size_before(entry_id) == sum(map(len, payloads(_COUNT)[:entry_id]))
            for entry_id in (-1, _COUNT + 1):
                with refuses(RangeError, ledger_id=ledger_id):
                    reader.size_before(entry_id)

    def test_an_empty_ledger_has_no_range(self, store: LedgerStore, make_ledger: MakeLedger) -> None:
        ledger_id = make_ledger([])
        assert store.open(ledger_id).status().entry_count == 0
        with refuses(RangeError, ledger_id=ledger_id):
            store.open(ledger_id).read(0, 0)

    def test_a_batch_has_no_more_bytes_than_are_wanted(
        self, store: LedgerStore, make_ledger: MakeLedger
    ) -> None:
        reader = store.open(make_ledger([content(100, i) for i in range(10)]))
        for max_bytes, count in [
            (1, 1),
            (99, 1),
            (100, 1),
            (199, 1),
            (200, 2),
            (999, 9),
            (1000, 10),
            (9999, 10),
        ]:
            assert 1 <= len(reader.read(0, 9, max_bytes)) <= count
        assert len(reader.read(0, 2, 9999)) <= 3
        assert all_of(reader, 250) == [content(100, i) for i in range(10)]

    def test_empty_entries_cost_nothing(self, store: LedgerStore, make_ledger: MakeLedger) -> None:
        reader = store.open(make_ledger([b"x", b"", b"", b"y"]))
        for first, whole in ((0, [b"x", b"", b""]), (1, [b"", b"", b"y"])):
            found = [bytes(entry) for entry in reader.read(first, 3, 1)]
            assert found == whole[: max(1, len(found))]

    @pytest.mark.parametrize("case_max_bytes", [0, -1])
    def test_a_batch_of_no_bytes_is_refused(
        self, store: LedgerStore, make_ledger: MakeLedger, case_max_bytes: int
    ) -> None:
        ledger_id = make_ledger([b"x"])
        with refuses(RangeError, ledger_id=ledger_id):
            store.open(ledger_id).read(0, 0, case_max_bytes)

    def test_what_was_read_cannot_be_changed(self, store: LedgerStore, make_ledger: MakeLedger) -> None:
        reader = store.open(make_ledger(payloads(50)))
        batches = [reader.read(0, 49) for _ in range(3)]
        reader.read(17, 30)
        reader.close()
        for batch in batches:
            assert [bytes(entry) for entry in batch] == payloads(50)
            with pytest.raises(TypeError):
                batch[1][0] = 0

    def test_readers_are_independent(self, store: LedgerStore, make_ledger: MakeLedger) -> None:
        ledger_id = make_ledger(payloads(100))
        one, another = store.open(ledger_id), store.open(ledger_id)
        for i in range(100):
            assert bytes(one.read(i, i)[0]) == payloads(100)[i]
            assert bytes(another.read(99 - i, 99 - i)[0]) == payloads(100)[99 - i]
        one.close()
        one.close()
        with refuses(LedgerClosedError, ledger_id=ledger_id):
            one.read(0, 0)
        assert all_of(another) == payloads(100)

    @pytest.mark.parametrize("case_ledger_id", [-1, 1 << 33, 1 << 62])
    def test_a_ledger_that_is_not_there_is_unknown(self, store: LedgerStore, case_ledger_id: int) -> None:
        for call in (store.open, store.verify):
            with refuses(UnknownLedgerError, ledger_id=case_ledger_id):
                call(case_ledger_id)

    def test_ledgers_are_listed_in_order(
        self, store: LedgerStore, other: LedgerStore, make_ledger: MakeLedger
    ) -> None:
        before = list(store.ledger_ids())
        made = [make_ledger([b"x"] * i) for i in range(3)]
        assert list(store.ledger_ids()) == list(other.ledger_ids()) == sorted(before + made)

    def test_what_is_whole_is_verified(self, store: LedgerStore, make_ledger: MakeLedger) -> None:
        ledger_id = make_ledger(payloads(100))
        assert store.verify(ledger_id) == store.open(ledger_id).status()


class GrowingLedgerCases(LedgerSuiteBase):
    """Reading a ledger that is being written."""

    def test_what_was_read_stays_as_it_is(self, store: WritableLedgerStore) -> None:
        writer = written(store, payloads(50))
        reader = store.open(writer.ledger_id)
        batches = [reader.read(0, 49) for _ in range(3)]
        writer.append_batch(payloads(50, seed=1))
        reader.read(0, 99)
        for batch in batches:
            assert [bytes(entry) for entry in batch] == payloads(50)

    def test_a_reader_sees_each_entry_once_it_is_acknowledged(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = store.create({})
        readers = [store.open(writer.ledger_id), other.open(writer.ledger_id)]
        for i in range(10):
            assert writer.append(b"%d" % i) == i
            for reader in readers:
                assert reader.status().entry_count == i + 1
                assert bytes(reader.read(i, i)[0]) == b"%d" % i
                with refuses(RangeError, ledger_id=writer.ledger_id):
                    reader.read(i, i + 1)

    @pytest.mark.parametrize("case_ledger_id", [-1, 0, 12345, 1 << 62])
    def test_a_ledger_that_is_not_there_is_not_changed(
        self, store: WritableLedgerStore, case_ledger_id: int
    ) -> None:
        with refuses(UnknownLedgerError, ledger_id=case_ledger_id):
            store.recover(case_ledger_id)
        assert store.delete(case_ledger_id) is False

    def test_a_deleted_ledger_is_not_listed(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        assert store.ledger_ids() == []
        ids = [store.create({}).ledger_id for _ in range(12)]
        store.delete(ids.pop(3))
        assert store.ledger_ids() == other.ledger_ids() == ids

    def test_what_grows_is_verified(self, store: WritableLedgerStore) -> None:
        writer = written(store, payloads(100))
        assert store.verify(writer.ledger_id) == writer.status
        assert writer.append(b"after") == 100
        assert store.verify(writer.ledger_id) == writer.status
