"""A catalogue, and what verifying found → what the page shows, as plain JSON of a bounded size.

The largest topics are listed one by one, the others together; of each the newest ledgers. Source: docs/report.md.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from typing import Any

from offload_core.maintenance.verify import Finding
from offload_core.metadata.catalogue import Catalogue, Ledger, StoredObject, Topic
from offload_hooks.errors import OptionError

PAGE_VERSION = 1
TOP_TOPICS = 20
MOST_LEDGERS = 200
MOST_FINDINGS = 500
MOST_DAYS = 62
"""Over a longer time there is a bar for each month."""

STATES = ("cold", "both", "hot", "problem")
"""States of a ledger: in the tier only; also in BookKeeper; in BookKeeper only; in the tier, and not readable."""

_KIB = 1 << 10
_SIZES = [
    ("below 64 KiB", 64 * _KIB),
    ("64 KiB to 1 MiB", _KIB * _KIB),
    ("1 to 16 MiB", 16 * _KIB * _KIB),
    ("16 to 128 MiB", 128 * _KIB * _KIB),
    ("128 MiB to 1 GiB", 1 << 30),
    ("1 GiB and more", None),
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
        location: where the tier is, without credentials.
        findings: those of a verification; None to report the catalogue's problems.
        top: number of topics that are listed one by one.

    Raises:
        OptionError: `top` is less than 1.
    """
    if top < 1:
        raise OptionError("a report tells of one topic at least", found=top)
    moment = datetime.now(timezone.utc) if now is None else now
    largest = heapq.nlargest(top, catalogue.topics, key=_stored_bytes)
    chosen = {id(topic) for topic in largest}
    names = _names(largest, catalogue)
    rest = [topic for topic in catalogue.topics if id(topic) not in chosen]
    objects = list({each.key: each for topic in catalogue.topics for each in _objects([topic])}.values())
    objects += catalogue.strays
    records = any(ledger.record is not None for topic in catalogue.topics for ledger in topic.ledgers)
    return {
        "version": PAGE_VERSION,
        "tier": location,
        "made_at": f"{moment:%Y-%m-%d %H:%M} UTC",
        "records": records,
        "verified": findings is not None,
        "totals": {
            "topics": len(catalogue.topics),
            "ledgers": sum(len(topic.ledgers) for topic in catalogue.topics),
            "copies": len(objects),
            "bytes": sum(map(_bytes_of, objects)),
        },
        "topics": [_topic_row([topic], name) for topic, name in zip(largest, names, strict=True)],
        "rest": _topic_row(rest, f"{len(rest)} more topics") if rest else None,
        "times": _times(
            [*(([topic], name) for topic, name in zip(largest, names, strict=True)), (rest, "all others")],
            catalogue.strays,
        ),
        "map": [_map_of(topic, name) for topic, name in zip(largest, names, strict=True)],
        "sizes": _histogram(objects, _SIZES, _bytes_of),
        "ages": _histogram(
            [each for each in objects if each.modified_at is not None],
            _AGES,
            lambda each: (moment - (each.modified_at or moment)) / timedelta(days=1),
        ),
        "problems": _problems(catalogue if findings is None else findings),
    }


def _names(topics: Sequence[Topic], catalogue: Catalogue) -> list[str]:
    several = len({topic.cluster for topic in catalogue.topics if topic.cluster is not None}) > 1
    return [f"{topic.label} (of {topic.cluster})" if several else topic.label for topic in topics]


def _objects(topics: Iterable[Topic]) -> Iterator[StoredObject]:
    seen = set()
    for topic in topics:
        for ledger in topic.ledgers:
            for stored in ledger.attempts:
                if stored.key not in seen:
                    seen.add(stored.key)
                    yield stored


def _bytes_of(stored: StoredObject) -> int:
    return (stored.data_bytes or 0) + (stored.index_bytes or 0)


def _stored_bytes(topic: Topic) -> int:
    return sum(map(_bytes_of, _objects([topic])))


def _state_of(ledger: Ledger) -> str:
    if ledger.extents:
        record = ledger.record
        hot = record is not None and record.has_hot_copy
        return "both" if hot else "cold"
    return "hot" if ledger.record is not None and not ledger.record.has_complete_copy else "problem"


def _ledger_bytes(ledger: Ledger) -> int:
    """The recorded facts of a ledger that is not in the tier."""
    if ledger.extents:
        return ledger.data_bytes
    return 0 if ledger.record is None else ledger.record.info.size or 0


def _topic_row(topics: Sequence[Topic], name: str) -> dict[str, Any]:
    ledgers = [ledger for topic in topics for ledger in topic.ledgers]
    objects = list(_objects(topics))
    times = [stored.modified_at for stored in objects if stored.modified_at is not None]
    states = dict.fromkeys(STATES, 0)
    for ledger in ledgers:
        states[_state_of(ledger)] += _ledger_bytes(ledger)
    return {
        "name": name,
        "ledgers": len(ledgers),
        "copies": len(objects),
        "entries": sum(ledger.entries or 0 for ledger in ledgers),
        "bytes": sum(map(_bytes_of, objects)),
        "formats": sorted({each.value for ledger in ledgers for each in ledger.formats}),
        "oldest": _day(min(times)) if times else None,
        "newest": _day(max(times)) if times else None,
        "problems": sum(stored.complaint is not None for stored in objects),
        "states": states,
    }


def _day(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%d}"


def _times(groups: Sequence[tuple[Sequence[Topic], str]], strays: Sequence[StoredObject]) -> dict[str, Any]:
    """Return what was offloaded when, by topic, and how it adds up."""
    of_groups = [(name, list(_objects(topics))) for topics, name in groups]
    if strays:
        of_groups.append(("of no known topic", list(strays)))
    days = sorted(
        {
            _day(each.modified_at)
            for _, objects in of_groups
            for each in objects
            if each.modified_at is not None
        }
    )
    by_day = not days or _days_between(days[0], days[-1]) <= MOST_DAYS
    length = 10 if by_day else 7
    steps = sorted({day[:length] for day in days})
    series: list[dict[str, Any]] = []
    for name, objects in of_groups:
        counted: Counter[str] = Counter()
        for each in objects:
            if each.modified_at is not None:
                counted[_day(each.modified_at)[:length]] += _bytes_of(each)
        if counted:
            series.append({"name": name, "bytes": [counted[step] for step in steps]})
    totals = [sum(each["bytes"][i] for each in series) for i in range(len(steps))]
    step = "day" if by_day else "month"
    return {"step": step, "steps": steps, "series": series, "growth": list(accumulate(totals))}


def _days_between(first: str, last: str) -> int:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).days


def _map_of(topic: Topic, name: str) -> dict[str, Any]:
    """The newest ledgers of a topic, extent by extent."""
    ledgers = topic.ledgers[-MOST_LEDGERS:]
    pieces: list[dict[str, Any]] = []
    for ledger in ledgers:
        state = _state_of(ledger)
        if not ledger.extents:
            entries = ledger.entries
            whole = _piece(ledger, state, _ledger_bytes(ledger), 0, entries, None)
            pieces.append(whole | {"why": ledger.why_not_read if state == "problem" else None})
        for extent in ledger.extents:
            stop = ledger.entries if extent.stop_entry_id is None else extent.stop_entry_id
            shown = _piece(
                ledger, state, extent.data_bytes, extent.first_entry_id, stop, ledger.stored(extent)
            )
            pieces.append(shown | {"why": None})
    return {
        "topic": name,
        "left_out": len(topic.ledgers) - len(ledgers) + max(0, len(pieces) - 2 * MOST_LEDGERS),
        "pieces": pieces[-2 * MOST_LEDGERS :],
    }


def _piece(
    ledger: Ledger, state: str, size: int, first: int, stop: int | None, stored: StoredObject | None
) -> dict[str, Any]:
    return {
        "ledger": str(ledger.ledger_id),  # larger than a number of JavaScript may be
        "state": state,
        "bytes": size,
        "first": first,
        "stop": stop,
        "format": None if stored is None else stored.key.object_format.value,
        "at": None if stored is None or stored.modified_at is None else _day(stored.modified_at),
        "key": None if stored is None else stored.key.data_key,
    }


def _histogram(
    objects: Sequence[StoredObject],
    bins: Sequence[tuple[str, int | None]],
    measure: Callable[[StoredObject], float],
) -> list[dict[str, Any]]:
    counts = [{"label": label, "copies": 0, "bytes": 0} for label, _ in bins]
    for each in objects:
        value = measure(each)
        place = next(i for i, (_, below) in enumerate(bins) if below is None or value < below)
        counts[place]["copies"] += 1  # type: ignore[operator]
        counts[place]["bytes"] += _bytes_of(each)  # type: ignore[operator]
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
        for (code, severity), count in sorted(counts.items())
    ]
    shown.sort(key=lambda each: str(each["severity"]))  # errors first
    return {"codes": codes, "shown": shown, "left_out": counts.total() - len(shown)}


def _of_stored(stored: StoredObject) -> dict[str, Any]:
    assert stored.complaint is not None
    code, words = stored.complaint
    return {
        "code": code,
        "severity": "error",
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
