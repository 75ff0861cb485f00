"""Leave out the ledgers, entries and blocks that cannot hold a row that is asked for, by conditions and publish times.

Conditions on columns restrict ledgers and entries by positions alone. For a range of times a few blocks are
probed: a small range of each gives the publish times of its first entries, without decompressing a payload. Entries lie
nearly in the order of their publish times, since producers' clocks stamp them and they are stored as they arrive; so
`slack_ms` is kept to spare on each side. Rows themselves are chosen by their own time, exactly.
Source: docs/spark.md, Time; ADR 0013.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import numpy as np

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES, PADDING
from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import BlockTable, IndexedBlock
from offload_core.format.messages.kernels import entries
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.reading.scan.extents import read_scan_ledger
from offload_core.reading.scan.other_copies import read_hot
from offload_core.reading.scan.positions import Position, position_of_message_id
from offload_core.reading.scan.tasks import EntryRange, ScanLedger, TimeRange
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, OptionError, UnknownLedgerError
from offload_hooks.json_text import whole_number
from offload_hooks.ledger_stores import EntryBatch

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST = 2**63 - 1


class Operator(enum.Enum):
    """A comparison of a column's value."""

    EQUAL = "="
    IN = "in"
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    CONTAINS = "contains"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A column compared with a value (of `IN`, a tuple of values); `is_negated`: what does not hold must hold."""

    column: str
    operator: Operator
    value: object
    is_negated: bool = False


def restrict_ledgers(scan_ledgers: Iterable[ScanLedger], conditions: Sequence[Condition]) -> list[ScanLedger]:
    """The ledgers, and of each the entries, that can hold a row for which all conditions hold."""
    if not conditions:
        return list(scan_ledgers)
    by_column = {
        name: [condition for condition in conditions if condition.column == name]
        for name in ("__topic", "__partition", "__ledgerId", "__entryId", "__messageId")
    }
    entry_range = _whole_numbers(by_column["__entryId"])
    places = _places(by_column["__messageId"])
    kept = []
    for scan_ledger in scan_ledgers:
        facts = (
            ("__topic", scan_ledger.topic),
            ("__partition", scan_ledger.partition),
            ("__ledgerId", scan_ledger.ledger_id),
        )
        if not all(_may_hold(condition, fact) for name, fact in facts for condition in by_column[name]):
            continue
        low, high = entry_range
        if places is not None:
            entries = [place.entry_id for place in places if place.ledger_id == scan_ledger.ledger_id]
            if not entries:
                continue
            low, high = max(low, min(entries)), min(high, max(entries) + 1)
        asked = _cut(scan_ledger.asked, low, high)
        if asked is not None:
            kept.append(replace(scan_ledger, asked=asked))
    return kept


def restrict_times(
    times: TimeRange | None, conditions: Sequence[Condition], slack_ms: int
) -> TimeRange | None:
    """A range of publish times that holds all of `times` for which the conditions on `__publishTime` hold."""
    on_time = [
        replace(condition, value=_rounded_down(condition.value))
        for condition in conditions
        if condition.column == "__publishTime" and _rounded_down(condition.value) is not None
    ]
    low, high = _whole_numbers(on_time)
    given = TimeRange(slack_ms=slack_ms) if times is None else times
    start = low if low > 0 else None
    # A comparison may be finer than the milliseconds that it was rounded down to.
    stop = high + 1 if high < _MOST else None
    restricted = replace(
        given,
        start_ms=max((each for each in (start, given.start_ms) if each is not None), default=None),
        stop_ms=min((each for each in (stop, given.stop_ms) if each is not None), default=None),
    )
    return None if restricted.start_ms is None and restricted.stop_ms is None else restricted


def _whole_numbers(conditions: Sequence[Condition]) -> tuple[int, int]:
    """The half-open range of numbers from 0 on that all conditions can hold for."""
    low, high = 0, _MOST
    for condition in conditions:
        values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        if condition.is_negated or len(numbers) != len(values) or not numbers:
            continue
        least, most = min(numbers), max(numbers)
        match condition.operator:
            case Operator.EQUAL | Operator.IN:
                low, high = max(low, least), min(high, most + 1)
            case Operator.GREATER:
                low = max(low, least + 1)
            case Operator.GREATER_OR_EQUAL:
                low = max(low, least)
            case Operator.LESS:
                high = min(high, most)
            case Operator.LESS_OR_EQUAL:
                high = min(high, most + 1)
    return low, high


def _rounded_down(value: object) -> object:
    """Times, or a tuple of them, in whole milliseconds rounded down; None for any value that is no time with a zone."""
    if isinstance(value, tuple):
        each = tuple(_rounded_down(part) for part in value)
        return None if None in each else each
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // timedelta(milliseconds=1)


def _places(conditions: Sequence[Condition]) -> list[Position] | None:
    """The positions of message ids that the conditions name; None if they name none."""
    named = [
        condition
        for condition in conditions
        if not condition.is_negated and condition.operator in (Operator.EQUAL, Operator.IN)
    ]
    if not named:
        return None
    ids = named[0].value if isinstance(named[0].value, tuple) else (named[0].value,)
    places = []
    for each in ids:
        try:
            places.append(position_of_message_id(bytes(each)))
        except (OptionError, TypeError):
            continue  # no message has it
    return places


def _cut(asked: EntryRange, low: int, high: int) -> EntryRange | None:
    """The entries of both ranges; None if there are none."""
    if low > asked.start:
        asked = replace(asked, start=low, start_batch=0)
    if high < _MOST and (asked.stop is None or high < asked.stop):
        asked = replace(asked, stop=high, stop_batch=0)
    return None if asked.stop is not None and asked.stop <= asked.start else asked


_TEXT: dict[Operator, Callable[[str, str], bool]] = {
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
    Operator.CONTAINS: str.__contains__,
}


def _may_hold(condition: Condition, fact: str | int | None) -> bool:
    """True if a condition holds for a fact, or if that is not known."""
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    if fact is None or not values or any(type(value) is not type(fact) for value in values):
        return True
    return _holds(condition.operator, fact, values) is not condition.is_negated


def _holds(operator: Operator, fact: str | int, values: tuple[object, ...]) -> bool:
    if operator in (Operator.EQUAL, Operator.IN):
        return fact in values
    value = values[0]
    if isinstance(fact, str) and isinstance(value, str):
        if operator in _TEXT:
            return _TEXT[operator](fact, value)
        order = (fact > value) - (fact < value)
    elif isinstance(fact, int) and isinstance(value, int):
        order = (fact > value) - (fact < value)
    else:
        return True
    return {
        Operator.GREATER: order > 0,
        Operator.GREATER_OR_EQUAL: order >= 0,
        Operator.LESS: order < 0,
        Operator.LESS_OR_EQUAL: order <= 0,
    }.get(operator, True)


PROBE_BYTES = 16 << 10
"""Bytes that are read of a block at first; more only if they have no entry's metadata whole."""

_GROWTH = 8
_MOST_ENTRIES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A block's first entry, and the earliest and latest publish time (ms) of the first entries that a probe saw."""

    entry_id: int
    earliest_ms: int
    latest_ms: int


def probe_block(tier: Tier, extent: LedgerExtent, block: IndexedBlock) -> Probe | None:
    """Read the publish times of a block's first entries; None if they are not found (damaged bytes, for one).

    Damage is reported where the block is read.

    Raises:
        StoreError: the store fails.
    """
    if extent.hot is not None:
        return _probe_hot(tier, extent, block)
    size = min(block.length, PROBE_BYTES)
    while True:
        data = tier.read_range(extent.data_key, block.offset, size)
        if extent.marks.has_gaps and data[BLOCK_HEADER_BYTES:][: len(PADDING)] == PADDING:
            return None  # a filter removed all of its entries, and its padding may be long
        try:
            found = _probe_window(data, extent, block)
        except FormatError:
            return None
        if found is not None or size == block.length:
            return found
        size = min(block.length, size * _GROWTH)


def _probe_hot(tier: Tier, extent: LedgerExtent, block: IndexedBlock) -> Probe | None:
    first = replace(extent, stop_entry_id=block.first_entry_id + 1).with_blocks(BlockTable.of([block]))
    try:
        (batch,) = read_hot(tier, first, block.first_entry_id)
        return _probe_window(batch, extent, replace(block, offset=block.first_entry_id))
    except (FormatError, UnknownLedgerError):
        return None


def _probe_window(data: memoryview | EntryBatch, extent: LedgerExtent, block: IndexedBlock) -> Probe | None:
    cursor = EntryCursor(replace(extent, begin_entry_id=None, stop_entry_id=None))
    cursor.feed(block, data, block.offset)
    entry_ids, offsets, lengths = (np.empty(_MOST_ENTRIES, dtype=np.int64) for _ in range(3))
    count = cursor.locate(entry_ids, offsets, lengths, PROBE_BYTES)
    is_mapfile = extent.sequence_file is not None
    # The index has a block's first id, with or without that entry.
    first = int(entry_ids[0]) if count and is_mapfile else block.first_entry_id
    if not count and not is_mapfile and not cursor.block_is_done:
        # The first entry goes on after the window, its metadata perhaps not.
        count = 1
        offsets[0] = BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES
        lengths[0] = len(cursor.array) - offsets[0]
    table = np.empty((count, f.E_FIELDS), dtype=np.int64)
    right = entries.read_entries(cursor.array, offsets, lengths, count, 0, table) if count else 0
    if not right:
        return None
    times = table[:right, f.E_PUBLISH_TIME]
    return Probe(entry_id=first, earliest_ms=int(times.min()), latest_ms=int(times.max()))


_MOST_PASSED = 8
"""At most this many blocks, or ledgers, are probed for one that has times."""


Time = int | datetime | str
"""Milliseconds since the epoch, a time that knows its zone, or either as text, as `parse_time` reads it."""


def time_range(start: Time | None, stop: Time | None, slack_ms: int) -> TimeRange | None:
    """A range of publish times. None without bounds.

    Raises:
        OptionError: a time in another form or without a zone, or a negative slack.
    """
    if slack_ms < 0:
        raise OptionError("the slack of times is negative", expected="0 or more", found=slack_ms)
    if start is None and stop is None:
        return None
    return TimeRange(
        start_ms=_rounded_up(start, "start_time"), stop_ms=_rounded_up(stop, "stop_time"), slack_ms=slack_ms
    )


_TIMES = "milliseconds since the epoch, or a time like 2026-11-21T08:30:00Z"


def parse_time(text: str, option: str) -> int | datetime:
    """A time as a person writes it: milliseconds since the epoch, or ISO 8601 with a zone.

    Raises:
        OptionError: another form; `option` is named.
    """
    if (milliseconds := whole_number(text)) is not None:
        return milliseconds
    try:
        time = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))  # Python 3.10 knows no Z
    except ValueError as error:
        raise OptionError(f"{option} is not a time", expected=_TIMES, found=text) from error
    if time.tzinfo is None:
        raise OptionError(f"{option} has no zone", expected=_TIMES, found=text)
    return time


def _rounded_up(time: Time | None, option: str) -> int | None:
    """Rounded up: publish times are whole milliseconds, so both an inclusive start and an exclusive stop stay right."""
    if isinstance(time, str):
        time = parse_time(time, option)
    if time is None or isinstance(time, int):
        return time
    if not isinstance(time, datetime):
        raise OptionError(f"{option} is not a time", expected=_TIMES, found=repr(time))
    if time.tzinfo is None:
        raise OptionError(f"{option} has no zone", expected=_TIMES, found=str(time))
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def narrow(tier: Tier, scan_ledgers: Sequence[ScanLedger], times: TimeRange) -> list[ScanLedger]:
    """Restrict a topic's ledgers to what can hold messages of a range of times.

    Two binary searches, each over the ledgers and then over the blocks of one. `scan_ledgers` are all of the topic's,
    in order; ledgers that cannot be read are kept where they lie between others.

    Raises:
        StoreError: the store fails.
    """
    search = _Search(tier)
    kept = list(scan_ledgers)
    if times.stop_ms is not None:
        kept = _cut_after(search, kept, times.stop_ms + times.slack_ms)
    if times.start_ms is not None:
        kept = _cut_before(search, kept, times.start_ms - times.slack_ms)
    return kept


class _TimedBlocks:
    """The blocks of these extents, one after another, each made when it is asked for."""

    def __init__(self, extents: Sequence[LedgerExtent]) -> None:
        self._extents = extents
        self._begins = np.cumsum([0, *(len(extent.ledger.blocks) for extent in extents)])

    def __len__(self) -> int:
        return int(self._begins[-1])

    def __getitem__(self, at: int) -> tuple[LedgerExtent, IndexedBlock]:
        number = int(np.searchsorted(self._begins, at, side="right")) - 1
        extent = self._extents[number]
        return extent, extent.ledger.blocks[at - int(self._begins[number])]


class _Search:
    """Probes of one topic's blocks, each made once."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._read: dict[int, ScanLedger] = {}
        self._probes: dict[tuple[str, int], Probe | None] = {}

    def read(self, scan_ledger: ScanLedger) -> ScanLedger:
        """Return it with the ledger's index read."""
        found = self._read.get(scan_ledger.ledger_id)
        if found is None:
            found = self._read[scan_ledger.ledger_id] = read_scan_ledger(self._tier, scan_ledger)
        return replace(scan_ledger, ledger=found.ledger)

    def blocks(self, scan_ledger: ScanLedger) -> _TimedBlocks:
        """The ledger's blocks, in order."""
        return _TimedBlocks(self.read(scan_ledger).ledger.extents)

    def probe(self, place: tuple[LedgerExtent, IndexedBlock]) -> Probe | None:
        """The first entries' times of a block."""
        extent, block = place
        at = extent.data_key, block.offset
        if at not in self._probes:
            self._probes[at] = probe_block(self._tier, extent, block)
        return self._probes[at]

    def probe_ledger(self, scan_ledger: ScanLedger) -> Probe | None:
        """The first entries' times of a ledger."""
        blocks = self.blocks(scan_ledger)
        return self.probe(blocks[0]) if blocks else None


def _cut_before(search: _Search, scan_ledgers: list[ScanLedger], border_ms: int) -> list[ScanLedger]:
    """Leave out what lies before entries that are all older than the border."""

    def is_near(probe: Probe | None) -> bool | None:
        return None if probe is None else probe.latest_ms >= border_ms

    readable = [i for i, scan_ledger in enumerate(scan_ledgers) if scan_ledger.ledger.is_readable]
    ledgers = _count_until(
        len(readable), lambda i: is_near(search.probe_ledger(scan_ledgers[readable[i]])), unknown=True
    )
    if not ledgers:
        return scan_ledgers
    at = readable[ledgers - 1]
    scan_ledger = search.read(scan_ledgers[at])
    blocks = search.blocks(scan_ledger)
    number = _count_until(len(blocks), lambda i: is_near(search.probe(blocks[i])), unknown=True)
    first = search.probe(blocks[number - 1]) if number else None
    if first is not None and first.entry_id > scan_ledger.asked.start:
        scan_ledger = replace(
            scan_ledger, asked=replace(scan_ledger.asked, start=first.entry_id, start_batch=0)
        )
    return [scan_ledger, *scan_ledgers[at + 1 :]]


def _cut_after(search: _Search, scan_ledgers: list[ScanLedger], border_ms: int) -> list[ScanLedger]:
    """Leave out what comes after entries of which none is older than the border."""

    def is_new(probe: Probe | None) -> bool | None:
        return None if probe is None else probe.earliest_ms >= border_ms

    readable = [i for i, scan_ledger in enumerate(scan_ledgers) if scan_ledger.ledger.is_readable]
    ledgers = _count_until(
        len(readable), lambda i: is_new(search.probe_ledger(scan_ledgers[readable[i]])), unknown=False
    )
    kept = scan_ledgers[: readable[ledgers]] if ledgers < len(readable) else scan_ledgers
    if not ledgers:
        return kept
    at = readable[ledgers - 1]
    scan_ledger = search.read(kept[at])
    blocks = search.blocks(scan_ledger)
    number = _count_until(len(blocks), lambda i: is_new(search.probe(blocks[i])), unknown=False)
    first = search.probe(blocks[number]) if number < len(blocks) else None
    asked = scan_ledger.asked
    if first is not None and (asked.stop is None or first.entry_id < asked.stop):
        asked = replace(asked, stop=first.entry_id, stop_batch=0)
    scan_ledger = replace(scan_ledger, asked=asked, ends_by_time=True)
    return [*kept[:at], scan_ledger, *kept[at + 1 :]]


def _count_until(count: int, holds: Callable[[int], bool | None], *, unknown: bool) -> int:
    """Find by bisection the first of 0 … `count` − 1 that `holds`; `count` if none does.

    If `holds` returns None, as for a block that a filter has emptied, the next one counts for which it does not;
    `unknown` if none of a few does.

    Where it does not hold for all that follow the first that it holds for, the answer is one of several borders; it is
    right to cut at each.
    """
    low, high = 0, count
    while low < high:
        middle = at = (low + high) // 2
        found = holds(at)
        while found is None and at + 1 < min(high, middle + _MOST_PASSED):
            at += 1
            found = holds(at)
        if found is None:
            found, at = unknown, middle
        if found:
            high = at
        else:
            low = at + 1
    return low
