"""Drawn histories of transactions, over ledgers in all formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from entries import LedgerPart, WrittenObject, pip17_object, streaming_object
from hypothesis import strategies as st
from mapfiles import mapfile
from transactions import Event, Position, Transaction

from offload_core.codec.mapfile.header import FileCompression

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
