# ruff: noqa: D102 (the names of the cases state the promises)
"""Reading ranges of entries, of ledgers that are sealed or grow."""

from __future__ import annotations

import pytest

from offload_hooks.errors import LedgerClosedError, RangeError, UnknownLedgerError
from offload_hooks.ledger_stores import LedgerStore, SizedLedgerReader
from offload_hooks.testing.content import content
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase, all_of, payloads, refuses, written

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

    @pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
    @pytest.mark.parametrize(("first", "last"), _RANGES.values(), ids=_RANGES)
    def test_a_range_is_exact(self, store: LedgerStore, sealed: bool, first: int, last: int) -> None:
        writer = written(store, payloads(_COUNT))
        if sealed:
            writer.close()
        reader = store.open(writer.ledger_id)
        assert reader.ledger_id == writer.ledger_id
        batch = reader.read(first, last)
        assert (batch.first_entry_id, batch.stop_entry_id) == (first, last + 1)
        assert [bytes(entry) for entry in batch] == payloads(_COUNT)[first : last + 1]

    @pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
    @pytest.mark.parametrize(("first", "last"), _NONE.values(), ids=_NONE)
    def test_no_ledger_has_a_range(self, store: LedgerStore, sealed: bool, first: int, last: int) -> None:
        writer = written(store, payloads(_COUNT))
        if sealed:
            writer.close()
        with refuses(RangeError, ledger_id=writer.ledger_id):
            store.open(writer.ledger_id).read(first, last)

    @pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
    def test_sizes_are_exact_where_a_reader_tells_them(self, store: LedgerStore, sealed: bool) -> None:
        writer = written(store, payloads(_COUNT))
        if sealed:
            writer.close()
        reader = store.open(writer.ledger_id)
        if isinstance(reader, SizedLedgerReader):
            for entry_id in (0, 1, 17, 100, _COUNT - 1, _COUNT):
                assert reader.size_before(entry_id) == sum(map(len, payloads(_COUNT)[:entry_id]))
            for entry_id in (-1, _COUNT + 1):
                with refuses(RangeError, ledger_id=writer.ledger_id):
                    reader.size_before(entry_id)

    def test_an_empty_ledger_has_no_range(self, store: LedgerStore) -> None:
        writer = store.create({})
        for _ in range(2):
            with refuses(RangeError, ledger_id=writer.ledger_id):
                store.open(writer.ledger_id).read(0, 0)
            assert writer.close().entry_count == 0

    def test_a_batch_has_no_more_bytes_than_are_wanted(self, store: LedgerStore) -> None:
        writer = written(store, [content(100, i) for i in range(10)])
        reader = store.open(writer.ledger_id)
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
            assert len(reader.read(0, 9, max_bytes)) == count
        assert len(reader.read(0, 2, 9999)) == 3
        assert all_of(reader, 250) == [content(100, i) for i in range(10)]

    def test_empty_entries_cost_nothing(self, store: LedgerStore) -> None:
        writer = written(store, [b"x", b"", b"", b"y"])
        reader = store.open(writer.ledger_id)
        assert [bytes(entry) for entry in reader.read(0, 3, 1)] == [b"x", b"", b""]
        assert [bytes(entry) for entry in reader.read(1, 3, 1)] == [b"", b"", b"y"]

    @pytest.mark.parametrize("max_bytes", [0, -1])
    def test_a_batch_of_no_bytes_is_refused(self, store: LedgerStore, max_bytes: int) -> None:
        writer = written(store, [b"x"])
        with refuses(RangeError, ledger_id=writer.ledger_id):
            store.open(writer.ledger_id).read(0, 0, max_bytes)

    def test_what_was_read_stays_as_it_is(self, store: LedgerStore) -> None:
        writer = written(store, payloads(50))
        reader = store.open(writer.ledger_id)
        batches = [reader.read(0, 49) for _ in range(3)]
        writer.append_batch(payloads(50, seed=1))
        reader.read(0, 99)
        reader.close()
        for batch in batches:
            assert [bytes(entry) for entry in batch] == payloads(50)
            with pytest.raises(TypeError):
                batch[1][0] = 0

    def test_a_reader_sees_each_entry_once_it_is_acknowledged(
        self, store: LedgerStore, other: LedgerStore
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

    def test_readers_are_independent(self, store: LedgerStore) -> None:
        writer = written(store, payloads(100))
        one, another = store.open(writer.ledger_id), store.open(writer.ledger_id)
        for i in range(100):
            assert bytes(one.read(i, i)[0]) == bytes(another.read(99 - i, 99 - i)[0]) or i != 99 - i
        one.close()
        one.close()
        with refuses(LedgerClosedError, ledger_id=writer.ledger_id):
            one.read(0, 0)
        assert all_of(another) == payloads(100)

    @pytest.mark.parametrize("ledger_id", [-1, 0, 12345, 1 << 62])
    def test_a_ledger_that_is_not_there_is_unknown(self, store: LedgerStore, ledger_id: int) -> None:
        for call in (store.open, store.recover, store.verify):
            with refuses(UnknownLedgerError, ledger_id=ledger_id):
                call(ledger_id)
        assert store.delete(ledger_id) is False

    def test_ledgers_are_listed_in_order(self, store: LedgerStore, other: LedgerStore) -> None:
        assert store.ledger_ids() == []
        ids = [store.create({}).ledger_id for _ in range(12)]
        store.delete(ids.pop(3))
        assert store.ledger_ids() == other.ledger_ids() == ids

    def test_what_is_whole_is_verified(self, store: LedgerStore) -> None:
        writer = written(store, payloads(100))
        assert store.verify(writer.ledger_id) == writer.status
        assert writer.append(b"after") == 100
        assert store.verify(writer.ledger_id) == writer.status
