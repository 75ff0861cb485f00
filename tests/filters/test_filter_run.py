"""A filter over batches of entries: what is left, what is counted, what it refuses; and the kernel's reference."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.filters import PlainFilter
from scenes.transactions import ONE, OTHER, PLAIN, abort, commit, of

from offload_core.format.codec.arrays import read_only
from offload_core.format.codec.kernels.frames import copy_kept
from offload_core.format.codec.object_marks import FILTERED_TRANSACTIONS
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import DroppedEntries, FilterMode
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.errors import BrokenPluginError, EntryOrderError
from offload_hooks.ledger_stores import EntryBatch

PAYLOADS = st.lists(st.tuples(st.binary(max_size=20), st.booleans()), max_size=20)


def payloads_of(filtered):
    borders = filtered.offsets.tolist()
    return {
        entry_id: filtered.data[borders[i] : borders[i + 1]].tobytes()
        for i, entry_id in enumerate(filtered.entry_ids.tolist())
    }


class Numbered:
    """Drops each entry by the cause that its first byte says."""

    stop = None
    waits_for = ""
    causes = ("one", "two", "three")

    def look(self, _, entries):
        return memoryview(array("i", [each[0] for each in entries]))


@given(PAYLOADS, st.integers(0, 5))
def test_copying_what_is_kept_is_joining_it(payloads, before):
    data = read_only(bytes(before) + b"".join(payload for payload, _ in payloads))
    borders = before + np.cumsum([0, *(len(payload) for payload, _ in payloads)])
    dropped = np.array([is_dropped for _, is_dropped in payloads], dtype=np.bool_)
    borders.flags.writeable = False
    out, out_offsets = np.empty(len(data) - before, dtype=np.uint8), np.empty_like(borders)
    kept = copy_kept(data, borders, dropped, out, out_offsets)
    left = [payload for payload, is_dropped in payloads if not is_dropped]
    assert kept == len(left)
    ends = out_offsets[: kept + 1].tolist()
    assert [out[a:b].tobytes() for a, b in pairwise(ends)] == left


@given(
    st.lists(st.binary(min_size=1, max_size=6).map(lambda each: bytes([each[0] % 4]) + each[1:]), max_size=12)
)
def test_what_is_dropped_is_counted_by_its_cause_as_it_is_noted(payloads):
    run = FilterRun("numbered", FilterMode.GAP, Numbered())
    filtered = run.apply(7, EntryBatch.of(100, payloads))
    left = {100 + i: payload for i, payload in enumerate(payloads) if not payload[0]}
    assert payloads_of(filtered) == left
    assert (filtered.first_entry_id, filtered.stop_entry_id) == (100, 100 + len(payloads))
    assert run.record().kept == DroppedEntries()
    noted = payloads[: len(payloads) // 2]
    run.note(filtered, 100 + len(noted))
    record = run.record()
    assert record.stop is None
    assert record.dropped == {
        name: DroppedEntries(
            entries=sum(each[0] == cause for each in noted),
            payload_bytes=sum(len(each) for each in noted if each[0] == cause),
        )
        for cause, name in enumerate(Numbered.causes, 1)
        if any(each[0] == cause for each in noted)
    }
    assert record.kept.entries == sum(not each[0] for each in noted)
    assert record.total_dropped.entries == len(noted) - record.kept.entries


def test_what_is_not_decided_of_is_not_taken():
    run = FilterRun("plain", FilterMode.GAP, PlainFilter(lambda _: 0, (5, 3), "a sign"))
    assert (run.stop, run.waits_for) == (EntryPosition(5, 3), "a sign")
    taken = [EntryPosition(4, 9), EntryPosition(5, 2), EntryPosition(5, 3), EntryPosition(6, 0)]
    assert [run.takes(each) for each in taken] == [True, True, False, False]
    assert len(run.apply(5, EntryBatch.of(2, [b"a"])).entry_ids) == 1
    assert len(run.apply(9, EntryBatch.of(2, [])).entry_ids) == 0
    with pytest.raises(EntryOrderError) as caught:
        run.apply(5, EntryBatch.of(2, [b"a", b"b"]))
    assert (caught.value.ledger_id, caught.value.entry_id) == (5, 3)


def test_a_cause_is_text():
    plain = PlainFilter(lambda _: 1)
    plain.causes = ((1, 2),)
    with pytest.raises(BrokenPluginError, match="'answers'") as caught:
        FilterRun("answers", FilterMode.GAP, plain).apply(5, EntryBatch.of(2, [b"a", b"b"]))
    assert (caught.value.ledger_id, caught.value.entry_id) == (5, 2)


@pytest.mark.parametrize("answer", [b"", b"\0\0\0", array("i", [0]), array("i", [0, 2]), array("i", [0, -1])])
def test_a_decision_is_a_known_number_for_each_entry(answer):
    class Answers(PlainFilter):
        def look(self, *_):
            return memoryview(answer)

    run = FilterRun("answers", FilterMode.GAP, Answers(lambda _: 0))
    with pytest.raises(BrokenPluginError, match="'answers'") as caught:
        run.apply(5, EntryBatch.of(2, [b"a", b"b"]))
    assert (caught.value.ledger_id, caught.value.entry_id) == (5, 2)


@pytest.mark.parametrize("name", ["by-size", FILTERED_TRANSACTIONS])
@pytest.mark.parametrize("mode", FilterMode)
def test_markers_are_dropped_by_the_filter_of_transactions_only(name, mode):
    events = [PLAIN, commit(ONE), of(ONE), abort(OTHER), PLAIN]
    payloads = [each.pack(i) for i, each in enumerate(events)]
    payloads.insert(3, b"not an entry") if mode is FilterMode.GAP else None
    run = FilterRun(name, mode, PlainFilter(lambda _: 1))
    filtered = run.apply(7, EntryBatch.of(10, payloads))
    markers = [i for i, payload in enumerate(payloads) if payload in (events[1].pack(1), events[3].pack(3))]
    kept = markers if name == "by-size" or mode is FilterMode.TOMBSTONE else []
    assert np.flatnonzero(filtered.causes == 0).tolist() == kept
    for place in kept:
        assert payloads_of(filtered)[10 + place] == payloads[place]
    if mode is FilterMode.GAP:
        assert list(payloads_of(filtered)) == [10 + place for place in kept]
