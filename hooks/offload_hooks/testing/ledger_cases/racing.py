# ruff: noqa: D102 (the names of the cases state the promises)
"""Many threads and stores at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain

from offload_hooks.errors import LedgerFencedError
from offload_hooks.ledger_stores import LedgerStatus, LedgerWriter, WritableLedgerStore
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase, all_of, payloads, written
from offload_hooks.testing.threads import outcomes, together

_EACH = 25


class RacingCases(LedgerSuiteBase):
    """Promises for calls at the same time."""

    def test_ids_are_unique_over_stores(self, store: WritableLedgerStore, other: WritableLedgerStore) -> None:
        def create(each: WritableLedgerStore) -> list[int]:
            return [each.create({}).ledger_id for _ in range(5)]

        calls = [partial(create, each) for each in [store, other] * (self.racers // 2)]
        found = together(calls, self.deadline_s)
        for ids in found:
            assert ids == sorted(ids)
        assert sorted(chain.from_iterable(found)) == list(store.ledger_ids())
        assert len(set(store.ledger_ids())) == 5 * len(calls)

    def test_entries_of_many_threads_get_dense_ids_in_order(self, store: WritableLedgerStore) -> None:
        writer = store.create({})

        def append(who: int) -> list[int]:
            return [writer.append(b"%d-%d" % (who, i)) for i in range(_EACH)]

        found = together([partial(append, who) for who in range(self.racers)], self.deadline_s)
        for ids in found:
            assert ids == sorted(ids)
        assert sorted(chain.from_iterable(found)) == list(range(self.racers * _EACH))
        entries = all_of(store.open(writer.ledger_id))
        assert [[entries[i] for i in ids] for ids in found] == [
            [b"%d-%d" % (who, i) for i in range(_EACH)] for who in range(self.racers)
        ]

    def test_batches_of_many_threads_stay_together(self, store: WritableLedgerStore) -> None:
        writer = store.create({})

        def append(who: int) -> list[int]:
            batches = [[b"%d-%d-%d" % (who, i, n) for n in range(1 + i % 4)] for i in range(_EACH)]
            return [
                writer.append_batch(batch) if len(batch) > 1 else writer.append(batch[0]) for batch in batches
            ]

        found = together([partial(append, who) for who in range(self.racers)], self.deadline_s)
        entries = all_of(store.open(writer.ledger_id))
        for who, ids in enumerate(found):
            for i, first in enumerate(ids):
                expected = [b"%d-%d-%d" % (who, i, n) for n in range(1 + i % 4)]
                assert entries[first : first + len(expected)] == expected

    def test_readers_see_a_prefix_while_entries_are_appended(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = store.create({})
        total = 200

        def append() -> None:
            for i in range(total):
                writer.append(b"entry %d" % i)

        def follow(each: WritableLedgerStore) -> None:
            reader, seen = each.open(writer.ledger_id), 0
            while seen < total:
                count = reader.status().entry_count
                assert count >= seen
                if count > seen:
                    batch = reader.read(seen, count - 1)
                    assert [bytes(entry) for entry in batch] == [b"entry %d" % i for i in range(seen, count)]
                    seen = count

        calls: list[Callable[[], None]] = [append, partial(follow, store), partial(follow, other)]
        together(calls, self.deadline_s)

    def test_what_was_acknowledged_before_recovery_is_kept(
        self, store: WritableLedgerStore, other: WritableLedgerStore
    ) -> None:
        writer = written(store, payloads(5))

        def append(who: int) -> list[int]:
            acknowledged = []
            try:
                while True:
                    acknowledged.append(writer.append(b"%d" % who))
            except LedgerFencedError:
                return acknowledged

        def recover() -> list[int]:
            return [other.recover(writer.ledger_id).status.entry_count]

        calls: list[Callable[[], list[int]]] = [partial(append, who) for who in range(self.racers - 1)]
        *found, recovered = together([*calls, recover], self.deadline_s)
        acknowledged = sorted(chain.from_iterable(found))
        assert acknowledged == list(range(5, 5 + len(acknowledged)))
        assert recovered[0] >= 5 + len(acknowledged)
        entries = all_of(other.open(writer.ledger_id))
        assert len(entries) == recovered[0]
        for who, ids in enumerate(found):
            assert {entries[i] for i in ids} <= {b"%d" % who}

    def test_recovery_and_closing_agree(self, store: WritableLedgerStore, other: WritableLedgerStore) -> None:
        for _ in range(5):
            writer = written(store, payloads(5))

            def recover(writer: LedgerWriter = writer) -> LedgerStatus:
                return other.recover(writer.ledger_id).status

            calls: list[Callable[[], LedgerStatus]] = [writer.close, recover]
            closed, recovered = outcomes(calls, self.deadline_s)
            assert recovered == other.verify(writer.ledger_id)
            assert isinstance(closed, LedgerFencedError) or closed == recovered
