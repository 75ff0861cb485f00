"""A catalogue, and what verifying found → what the page shows, as plain JSON of a bounded size.

The largest topics are listed one by one, the others together; of each the newest ledgers. Times are the ledgers' own:
when one was closed, by its record, or opened, by its index. An object's time is that of its last copy, and counts only
where a ledger has none. Source: docs/report.md.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from typing import Any

from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.inventory.ledger_history import indexed_ledger, time_of_ms
from offload_core.maintenance.verify import Finding, Severity
from offload_core.metadata.catalogue import Catalogue, Ledger, StoredObject, Topic
from offload_core.metadata.catalogue.summaries import count_text
from offload_hooks.errors import OptionError

PAGE_VERSION = 1
TOP_TOPICS = 20
MOST_SERIES = 7
"""Topics that have a colour of their own over time."""
MOST_EXTENTS = 200
"""The newest extents of a topic that are shown."""
MOST_EXTENTS_IN_ALL = 4_000
MOST_FINDINGS = 500
MOST_DAYS = 62
"""Over a longer time there is a bar for each month."""
MOST_MONTHS = 36
"""And over a longer one for each year."""

STATES = ("cold", "both", "hot", "problem")
"""States of a ledger: in the tier only; also in BookKeeper; in BookKeeper only; in the tier, and not readable."""

_FIRST_LEDGER = datetime(2011, 1, 1, tzinfo=timezone.utc)
"""BookKeeper is not older: an earlier time of a ledger is a wrong one."""

_OF_NO_TOPIC = "of no known topic"

_MB = 1_000_000
_SIZES = [
    ("below 64 kB", 64_000),
    ("64 kB to 1 MB", _MB),
    ("1 to 16 MB", 16 * _MB),
    ("16 to 128 MB", 128 * _MB),
    ("128 MB to 1 GB", 1000 * _MB),
    ("1 GB and more", None),
]
_AGES = [
    ("less than a day", 1),
    ("1 to 7 days", 7),
    ("7 to 30 days", 30),
    ("30 to 90 days", 90),
    ("90 to 365 days", 365),
    ("a year and more", None),
]


def gather(
    catalogue: Catalogue,
    location: str,
    *,
    findings: Iterable[Finding] | None = None,
    top: int = TOP_TOPICS,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return what the page about a tier shows.

    Args:
        catalogue: the tier's topics and ledgers.
        location: where the tier is, without credentials.
        findings: those of a verification; None to report the catalogue's problems.
        top: number of topics that are listed one by one.
        now: the time of the page; None for the clock's.

    Raises:
        OptionError: `top` is less than 1.
    """
    if top < 1:
        raise OptionError("a report tells of one topic at least", found=top)
    moment = datetime.now(timezone.utc) if now is None else now
    largest = heapq.nlargest(top, catalogue.topics, key=lambda topic: sum(_sizes_of([topic]).values()))
    chosen = {id(topic) for topic in largest}
    names = _names(largest, catalogue)
    rest = [topic for topic in catalogue.topics if id(topic) not in chosen]
    strays = [_Copy(stored, stored.modified_at) for stored in catalogue.strays]
    copies = [*_copies(catalogue.topics, moment), *strays]
    records = any(ledger.record is not None for topic in catalogue.topics for ledger in topic.ledgers)
    others = [(rest, count_text(len(rest), "more topic"))] if rest else []
    rows = [_topic_row(topics, name, moment) for topics, name in [*_each(largest, names), *others]]
    most_extents = min(MOST_EXTENTS, MOST_EXTENTS_IN_ALL // max(1, len(largest)))
    return {
        "version": PAGE_VERSION,
        "tier": location,
        "made_at": f"{moment:%Y-%m-%d %H:%M} UTC",
        "records": records,
        "verified": findings is not None,
        "totals": {
            "topics": len(catalogue.topics),
            "ledgers": sum(len(topic.ledgers) for topic in catalogue.topics),
            "copies": len(copies),
            "bytes": sum(copy.size_bytes for copy in copies),
        },
        "topics": [*rows, *([_row_of_strays(strays)] if strays else [])],
        "times": _times(
            [
                *((name, _copies(topics, moment)) for topics, name in _each(largest, names)[:MOST_SERIES]),
                ("all others", _copies([*largest[MOST_SERIES:], *rest], moment)),
                (_OF_NO_TOPIC, strays),
            ]
        ),
        "map": [
            _map_of(topic, name, most_extents, moment) for topic, name in zip(largest, names, strict=True)
        ],
        "sizes": _histogram(copies, _SIZES, lambda copy: copy.size_bytes),
        "ages": _histogram(
            [copy for copy in copies if copy.at is not None],
            _AGES,
            lambda copy: (moment - (copy.at or moment)) / timedelta(days=1),
        ),
        "problems": _problems(catalogue if findings is None else findings),
    }


def _names(topics: Sequence[Topic], catalogue: Catalogue) -> list[str]:
    several = len({topic.cluster for topic in catalogue.topics if topic.cluster is not None}) > 1
    return [f"{topic.label} (of {topic.cluster})" if several else topic.label for topic in topics]


def _each(topics: Sequence[Topic], names: Sequence[str]) -> list[tuple[Sequence[Topic], str]]:
    return [([topic], name) for topic, name in zip(topics, names, strict=True)]


@dataclass(frozen=True, slots=True)
class _Copy:
    """An object, and the time of the newest ledger in it."""

    stored: StoredObject
    at: datetime | None

    @property
    def size_bytes(self) -> int:
        return _bytes_of(self.stored)


def _copies(topics: Iterable[Topic], now: datetime) -> list[_Copy]:
    """The objects of these topics, each once."""
    found: dict[ObjectKey, _Copy] = {}
    for topic in topics:
        for ledger in topic.ledgers:
            own = _time_of(ledger, now)
            for stored in ledger.attempts:
                at, known = own or stored.modified_at, found.get(stored.key)
                if known is not None and known.at is not None:
                    at = known.at if at is None else max(at, known.at)
                found[stored.key] = _Copy(stored, at)
    return list(found.values())


def _time_of(ledger: Ledger, now: datetime) -> datetime | None:
    """When a ledger was closed, by its record; else when it was opened, by an index; None if neither has it."""
    times = [] if ledger.record is None else [ledger.record.info.timestamp_ms]
    for stored in ledger.attempts:
        indexed = indexed_ledger(stored, ledger.ledger_id)
        if indexed is not None:
            facts = indexed.metadata
            times.append(facts.ctime_ms if isinstance(facts, LedgerMetadata) else facts.timestamp_ms)
    known = (time_of_ms(each) for each in times)
    return next((each for each in known if each is not None and _FIRST_LEDGER <= each <= now), None)


def _bytes_of(stored: StoredObject) -> int:
    return (stored.data_bytes or 0) + (stored.index_bytes or 0)


def _state_of(ledger: Ledger) -> str:
    if ledger.extents:
        record = ledger.record
        hot = record is not None and record.has_hot_copy
        return "both" if hot else "cold"
    return "hot" if ledger.record is not None and not ledger.record.has_complete_copy else "problem"


def _size_of(ledger: Ledger, state: str, counted: set[ObjectKey]) -> int:
    """Bytes of a ledger: those that are read; of one that cannot be read its objects'; else those that are recorded.

    Args:
        counted: objects of ledgers that cannot be read, each of which is counted once.
    """
    if ledger.extents:
        return ledger.data_bytes
    if state == "problem":
        found = {each.key: _bytes_of(each) for each in ledger.attempts if each.key not in counted}
        counted.update(found)
        if any(found.values()):
            return sum(found.values())
    return 0 if ledger.record is None else ledger.record.info.size or 0


def _sizes_of(topics: Iterable[Topic]) -> dict[str, int]:
    """Bytes of these topics, by the state of their ledgers."""
    states, counted = dict.fromkeys(STATES, 0), set[ObjectKey]()
    for topic in topics:
        for ledger in topic.ledgers:
            state = _state_of(ledger)
            states[state] += _size_of(ledger, state, counted)
    return states


def _topic_row(topics: Sequence[Topic], name: str, now: datetime) -> dict[str, Any]:
    ledgers = [ledger for topic in topics for ledger in topic.ledgers]
    copies = _copies(topics, now)
    return {
        **_row_of_copies(copies, name),
        "ledgers": len(ledgers),
        "entries": sum(ledger.entries or 0 for ledger in ledgers),
        "formats": sorted({each.value for ledger in ledgers for each in ledger.formats}),
        "states": _sizes_of(topics),
    }


def _row_of_strays(copies: Sequence[_Copy]) -> dict[str, Any]:
    return {
        **_row_of_copies(copies, _OF_NO_TOPIC),
        "ledgers": 0,
        "entries": 0,
        "formats": sorted({copy.stored.key.object_format.value for copy in copies}),
        "states": dict.fromkeys(STATES, 0) | {"problem": sum(copy.size_bytes for copy in copies)},
    }


def _row_of_copies(copies: Sequence[_Copy], name: str) -> dict[str, Any]:
    times = [copy.at for copy in copies if copy.at is not None]
    return {
        "name": name,
        "copies": len(copies),
        "bytes": sum(copy.size_bytes for copy in copies),
        "oldest": _day(min(times)) if times else None,
        "newest": _day(max(times)) if times else None,
        "problems": sum(copy.stored.complaint is not None for copy in copies),
    }


def _day(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%d}"


def _times(groups: Iterable[tuple[str, Sequence[_Copy]]]) -> dict[str, Any]:
    """Return what is stored of the ledgers of each day, by topic, and how it adds up."""
    of_groups = [
        (name, [(copy.at, copy) for copy in copies if copy.at is not None]) for name, copies in groups
    ]
    days = {_day(at) for _, copies in of_groups for at, _ in copies}
    step, steps = _steps(min(days), max(days)) if days else ("day", [])
    length = len(steps[0]) if steps else 0
    series: list[dict[str, Any]] = []
    for name, copies in of_groups:
        counted: Counter[str] = Counter()
        for at, copy in copies:
            counted[_day(at)[:length]] += copy.size_bytes
        if counted:
            series.append({"name": name, "bytes": [counted[each] for each in steps]})
    totals = [sum(each["bytes"][i] for each in series) for i in range(len(steps))]
    return {"step": step, "steps": steps, "series": series, "growth": list(accumulate(totals))}


def _steps(first: str, last: str) -> tuple[str, list[str]]:
    """All days between two, or all months or years: so many that each has a bar that can be seen."""
    begin, end = datetime.fromisoformat(first), datetime.fromisoformat(last)
    if (end - begin).days <= MOST_DAYS:
        return "day", [f"{begin + timedelta(days=i):%Y-%m-%d}" for i in range((end - begin).days + 1)]
    months = range(begin.year * 12 + begin.month - 1, end.year * 12 + end.month)
    if len(months) <= MOST_MONTHS:
        return "month", [f"{each // 12:04}-{each % 12 + 1:02}" for each in months]
    return "year", [f"{year:04}" for year in range(begin.year, end.year + 1)]


def _map_of(topic: Topic, name: str, most: int, now: datetime) -> dict[str, Any]:
    """The newest ledgers of a topic, extent by extent."""
    ledgers = topic.ledgers[-most:]
    pieces: list[dict[str, Any]] = []
    counted: set[ObjectKey] = set()
    for ledger in ledgers:
        state, at = _state_of(ledger), _time_of(ledger, now)
        if not ledger.extents:
            whole = _piece(ledger, state, _size_of(ledger, state, counted), 0, ledger.entries, None, at)
            pieces.append(whole | {"why": ledger.why_not_read if state == "problem" else None})
        for extent in ledger.extents:
            stop = ledger.entries if extent.stop_entry_id is None else extent.stop_entry_id
            stored = ledger.stored(extent)
            shown = _piece(ledger, state, extent.data_bytes, extent.first_entry_id, stop, stored, at)
            pieces.append(shown | {"why": None})
    return {
        "topic": name,
        "left_out": len(topic.ledgers) - len(ledgers) + max(0, len(pieces) - most),
        "pieces": pieces[-most:],
    }


def _piece(
    ledger: Ledger,
    state: str,
    size: int,
    first: int,
    stop: int | None,
    stored: StoredObject | None,
    at: datetime | None,
) -> dict[str, Any]:
    at = stored.modified_at if at is None and stored is not None else at
    return {
        "ledger": str(ledger.ledger_id),  # larger than a number of JavaScript may be
        "state": state,
        "bytes": size,
        "first": first,
        "stop": stop,
        "format": None if stored is None else stored.key.object_format.value,
        "at": None if at is None else _day(at),
        "key": None if stored is None else stored.key.data_key,
    }


def _histogram(
    copies: Sequence[_Copy], bins: Sequence[tuple[str, int | None]], measure: Callable[[_Copy], float]
) -> list[dict[str, Any]]:
    counts = [{"label": label, "copies": 0, "bytes": 0} for label, _ in bins]
    for each in copies:
        value = measure(each)
        place = next(i for i, (_, below) in enumerate(bins) if below is None or value < below)
        counts[place]["copies"] += 1  # type: ignore[operator]
        counts[place]["bytes"] += each.size_bytes  # type: ignore[operator]
    return counts


def _problems(found: Catalogue | Iterable[Finding]) -> dict[str, Any]:
    if isinstance(found, Catalogue):
        rows = (_of_stored(stored) for stored in found.problems)
    else:
        rows = (_of_finding(finding) for finding in found)
    counts: Counter[tuple[str, str]] = Counter()
    shown: list[dict[str, Any]] = []
    for each in rows:
        counts[each["code"], each["severity"]] += 1
        if len(shown) < MOST_FINDINGS:
            shown.append(each)
    codes = [
        {"code": code, "severity": severity, "count": count}
        for (code, severity), count in sorted(counts.items(), key=lambda each: (each[0][1], -each[1]))
    ]
    shown.sort(key=lambda each: str(each["severity"]))  # errors first
    return {"codes": codes, "shown": shown, "left_out": counts.total() - len(shown)}


def _of_stored(stored: StoredObject) -> dict[str, Any]:
    assert stored.complaint is not None
    code, words = stored.complaint
    return {
        "code": code,
        "severity": Severity.ERROR.value,
        "what": words,
        "place": stored.key.data_key,
        "helps": "offload verify tells more",
    }


def _of_finding(finding: Finding) -> dict[str, Any]:
    places = (("ledger", finding.ledger_id), ("block", finding.block), ("entry", finding.entry_id))
    named = [f"{name} {value}" for name, value in (*places, ("byte", finding.offset)) if value is not None]
    return {
        "code": finding.code.value,
        "severity": finding.severity.value,
        "what": finding.what,
        "place": ", ".join([each for each in (finding.topic, finding.key) if each is not None] + named),
        "helps": finding.code.helps,
    }
