"""Drawn histories of transactions, over ledgers in all formats: what is read is what a simulated broker gives."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from entries import LedgerPart, WrittenObject, pip17_object, streaming_object
from hypothesis import given, settings
from hypothesis import strategies as st
from mapfiles import mapfile
from tiers import TOPIC, in_memory
from transactions import Event, Position, Transaction, simulate

from offload_core.api import TierReader
from offload_core.catalogue import TopicName
from offload_core.codec.mapfile.header import FileCompression
from offload_core.scan import Offsets, read_task
from offload_core.scan import Position as ScanPosition

NAME = TopicName(TOPIC)
COLUMNS = ("__ledgerId", "__entryId", "__batchIndex")
FIRST, LAST = (0, 0), (99, 0)
TRANSACTIONS: Sequence[Transaction] = [(0, 0), (0, 1), (1, 0), (2, 7)]
FATES = ("commit", "abort", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Events by ledger, and the objects that hold them."""

    events: Mapping[int, Sequence[Event]]
    objects: Mapping[int, Sequence[WrittenObject]]

    @property
    def in_order(self) -> list[tuple[Position, Event]]:
        return [
            ((ledger_id, entry_id), event)
            for ledger_id, events in self.events.items()
            for entry_id, event in enumerate(events)
        ]


@st.composite
def events(draw: st.DrawFn, *, late: bool) -> list[Event]:
    """What happens in a topic. With `late`, messages also come to transactions that were aborted."""
    fates = {each: draw(st.sampled_from(FATES)) for each in TRANSACTIONS}
    ended: set[Transaction] = set()
    happened: list[Event] = []
    for kind in draw(
        st.lists(st.sampled_from(["plain", "sent", "sent", "end", "other"]), min_size=1, max_size=40)
    ):
        if kind == "plain":
            happened.append(Event(kind="messages", messages=draw(st.sampled_from([0, 0, 1, 3]))))
        elif kind == "other":
            happened.append(Event(kind=draw(st.sampled_from(["tombstone", "snapshot"]))))
        else:
            each = draw(st.sampled_from(TRANSACTIONS))
            fate = fates[each]
            if kind == "sent" and (late or not (each in ended and fate == "abort")):
                happened.append(
                    Event(kind="messages", transaction=each, messages=draw(st.sampled_from([0, 1, 2])))
                )
            elif kind == "end" and fate != "open":
                happened.append(Event(kind=fate, transaction=each))
                ended.add(each)
    return happened or [Event(kind="messages")]


@st.composite
def histories(draw: st.DrawFn, *, late: bool = False) -> History:
    happened = draw(events(late=late))
    borders = sorted(draw(st.sets(st.integers(1, max(1, len(happened) - 1)), max_size=3)))
    ledgers = {}
    objects = {}
    for number, (begin, end) in enumerate(zip([0, *borders], [*borders, len(happened)], strict=True)):
        if begin == end:
            continue
        ledger_id = 5 + 3 * number
        ledgers[ledger_id] = happened[begin:end]
        payloads = [event.pack(begin + i) for i, event in enumerate(happened[begin:end])]
        objects[ledger_id] = draw(st.sampled_from(FORMATS))(ledger_id, payloads)
    return History(events=ledgers, objects=objects)


def as_segments(ledger_id: int, payloads: Sequence[bytes]) -> list[WrittenObject]:
    """Two segments of two blocks each, as far as there are entries."""
    half = (len(payloads) + 1) // 2
    made = []
    for first, part in ((0, payloads[:half]), (half, payloads[half:])):
        blocks = [block for block in (part[: len(part) // 2], part[len(part) // 2 :]) if block]
        if blocks:
            segment = LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first)
            made.append(streaming_object([segment]))
    return made


FORMATS = [
    lambda ledger_id, payloads: [pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=600)],
    as_segments,
    *(
        lambda ledger_id, payloads, kind=kind: [mapfile(payloads, ledger_id=ledger_id, compression=kind)]
        for kind in (FileCompression.RECORD, FileCompression.BLOCK)
    ),
]


def positions(history: History) -> st.SearchStrategy[Position]:
    return st.sampled_from([position for position, _ in history.in_order])


def tier_of(history: History) -> TierReader:
    return in_memory(*(written for objects in history.objects.values() for written in objects))


def at(position: Position) -> Offsets:
    return {NAME: ScanPosition(*position)}


def rows_of(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in columns) for batch in batches for row in batch.to_pylist()]


def assert_is_read(history: History, start: Position, stop: Position, **options: object) -> None:
    """Both isolations, from the scan itself and from its tasks elsewhere, with and without summaries."""
    seen = simulate(history.in_order, start, stop)
    tier = tier_of(history)
    bounds = {
        "start": "earliest" if start == FIRST else at(start),
        "stop": "latest" if stop == LAST else at(stop),
    }
    with tempfile.TemporaryDirectory() as folder:
        for summaries, isolation, columns, expected in (
            (None, "committed", COLUMNS, seen.committed),
            (Path(folder), "committed", COLUMNS, seen.committed),
            (Path(folder), "uncommitted", (*COLUMNS, "__txnState"), seen.uncommitted),
            (None, "uncommitted", (*COLUMNS, "__txnState"), seen.uncommitted),
        ):
            scan = tier.scan(
                topic=TOPIC,
                columns=columns,
                isolation=isolation,  # type: ignore[arg-type]
                summaries=summaries,
                task_bytes=700,
                **bounds,  # type: ignore[arg-type]
                **options,  # type: ignore[arg-type]
            )
            if summaries is None:
                assert rows_of(list(scan), columns) == expected
            tasks, read_options = pickle.loads(pickle.dumps((scan.tasks, scan.options)))
            batches = [batch for task in tasks for batch in read_task(tier.store, task, read_options)]
            assert rows_of(batches, columns) == expected


@settings(deadline=None, max_examples=40)
@given(histories(late=True))
def test_a_whole_topic_is_read_as_a_broker_serves_it(history: History) -> None:
    assert_is_read(history, FIRST, LAST)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_a_range_is_read_as_a_broker_serves_it(data: st.DataObject) -> None:
    history = data.draw(histories())
    start, stop = data.draw(positions(history)), data.draw(positions(history))
    assert_is_read(history, start, stop)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_of_ledgers_that_are_missing_nothing_is_known(data: st.DataObject) -> None:
    history = data.draw(histories())
    kept = data.draw(st.sets(st.sampled_from(sorted(history.events)), min_size=1))
    left = History(
        events={ledger_id: each for ledger_id, each in history.events.items() if ledger_id in kept},
        objects={ledger_id: each for ledger_id, each in history.objects.items() if ledger_id in kept},
    )
    assert_is_read(left, FIRST, LAST, fail_on_data_loss=False)
