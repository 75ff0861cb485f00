"""Contents of a tier by tenant, namespace, topic, ledger or object: a row for each, from a stream of ledgers.

Ledgers come by topic and cluster, so what belongs to one row stands together, and a row is given when its last ledger
has passed. Values that must be sorted go through a temporary file, so that there may be any number of them.
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Generic, TypeVar

from offload_core.metadata.catalogue import (
    UNKNOWN_TOPIC,
    Ledger,
    Records,
    StoredObject,
    TopicName,
    record_catalogue,
)
from offload_core.metadata.catalogue.record_source import in_parts, read_priorities
from offload_core.metadata.catalogue.survey import FoundLedger, TemporaryTables
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import LedgerRecord
from offload_core.metadata.records.filter_record import (
    DroppedEntries,
    FilterMode,
    FilterRecord,
    indexed_filter,
)
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError

_DOMAIN = "persistent://"


class RowLevel(enum.Enum):
    """RowLevel of the rows."""

    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    LEDGER = "ledger"
    SEGMENT = "segment"
    """A data object, whichever format it has."""


@dataclass(slots=True, kw_only=True)
class Row:
    """A row.

    Attributes:
        name: of tenant, namespace or topic.
        ledger_id: of a ledger; of an object the first in it.
        keys: of the data objects that are read; of a row of an object, that one.
        entries: None where that is not known.
        data_bytes: what is read; of an object all of it.
        stored_bytes: of all attempts, data and indexes.
        unreadable: attempts that something is wrong with; `problem` is that of an object, by its code.
        lacking: complete attempts that lack entries, which were lost.
        superseded: complete attempts that are not read.
        hot_only: ledgers that are in BookKeeper only, by their records.
        hot_bytes: of `data_bytes`, those that are read from a hot tier.
        oldest, newest: times of attempts.
        filters: what filters did, by name and mode.
        record: of a ledger.
    """

    name: str
    cluster: str | None = None
    ledger_id: int | None = None
    keys: tuple[str, ...] = ()
    topics: int = 0
    ledgers: int = 0
    entries: int | None = None
    data_bytes: int = 0
    stored_bytes: int = 0
    blocks: int = 0
    attempts: int = 0
    unreadable: int = 0
    lacking: int = 0
    problem: str | None = None
    superseded: int = 0
    hot_only: int = 0
    hot_bytes: int = 0
    formats: tuple[str, ...] = ()
    storage_classes: tuple[str, ...] = ()
    oldest: datetime | None = None
    newest: datetime | None = None
    filters: dict[tuple[str, FilterMode], FilterRecord] = field(default_factory=dict)
    record: LedgerRecord | None = None

    def add(self, ledger: Ledger) -> None:
        """Count a ledger in."""
        self.ledgers += 1
        if ledger.entries is not None:
            self.entries = (self.entries or 0) + ledger.entries
        self.data_bytes += ledger.data_bytes
        hot = [extent for extent in ledger.extents if extent.hot is not None]
        self.hot_bytes += sum(extent.data_bytes for extent in hot)
        self.blocks += sum(extent.ledger.block_count for extent in ledger.extents if extent.hot is None)
        self.attempts += len(ledger.attempts)
        self.superseded += len(ledger.superseded)
        self.hot_only += not ledger.attempts
        self.formats = _joined(
            self.formats, [*(each.value for each in ledger.formats), *(["hot"] if hot else [])]
        )
        for stored in ledger.attempts:
            self.see(stored)
        for extent in ledger.extents:
            with suppress(FormatError):  # `verify` reports one that cannot be read
                record = indexed_filter(extent.ledger)
                if record is not None:
                    self._filtered(record)

    def see(self, stored: StoredObject) -> None:
        """Count an attempt's bytes and times in."""
        self.unreadable += not stored.is_complete
        self.lacking += stored.is_complete and stored.marks.lost is not None
        self.stored_bytes += (stored.data_bytes or 0) + (stored.index_bytes or 0)
        if stored.storage_class is not None:
            self.storage_classes = _joined(self.storage_classes, [stored.storage_class])
        if stored.modified_at is not None:
            self.oldest = min(self.oldest or stored.modified_at, stored.modified_at)
            self.newest = max(self.newest or stored.modified_at, stored.modified_at)

    def _filtered(self, record: FilterRecord) -> None:
        key = record.name, record.mode
        known = self.filters.get(key)
        nothing = DroppedEntries()
        self.filters[key] = FilterRecord(
            name=record.name,
            mode=record.mode,
            stop=None,
            kept=record.kept + (nothing if known is None else known.kept),
            total_dropped=record.total_dropped + (nothing if known is None else known.total_dropped),
        )


def rows_of(found: Iterable[FoundLedger], level: RowLevel) -> Iterator[Row]:
    """The rows of a level, of ledgers by topic, cluster and id."""
    if level is RowLevel.LEDGER:
        yield from map(_of_ledger, found)
    elif level is RowLevel.SEGMENT:
        for _, of_topic in groupby(found, key=_owner):
            yield from _of_objects(of_topic)
    else:
        for (name, cluster), members in groupby(found, key=lambda each: _group(each, level)):
            row = Row(name=name, cluster=cluster)
            owner = None
            for each in members:
                row.topics += owner != _owner(each)
                owner = _owner(each)
                row.add(each.ledger)
            yield row


def _owner(found: FoundLedger) -> tuple[str, str | None]:
    return _name(found), found.cluster


def _name(found: FoundLedger) -> str:
    return UNKNOWN_TOPIC if found.topic is None else found.topic.full.removeprefix(_DOMAIN)


def _group(found: FoundLedger, level: RowLevel) -> tuple[str, str | None]:
    """The row that a ledger belongs to: tenants and namespaces are those of all clusters."""
    name = _name(found)
    if level is RowLevel.TOPIC:
        return name, found.cluster
    if found.topic is None:
        return name, None
    return "/".join(name.split("/")[: 1 if level is RowLevel.TENANT else 2]), None


def _of_ledger(found: FoundLedger) -> Row:
    row = Row(name=_name(found), cluster=found.cluster, ledger_id=found.ledger.ledger_id, topics=1)
    row.add(found.ledger)
    row.keys = tuple(extent.data_key for extent in found.ledger.extents)
    row.record = found.ledger.record
    return row


def _of_objects(found: Iterable[FoundLedger]) -> Iterator[Row]:
    """The objects of a topic, each when its last ledger has passed."""
    open_: dict[str, tuple[Row, int]] = {}
    for each in found:
        ledger = each.ledger
        read = {extent.data_key: extent for extent in ledger.extents}
        for stored in ledger.attempts:
            key = stored.key.data_key
            row, last = open_.get(key) or (_new(each, stored), _last_ledger(stored, ledger.ledger_id))
            open_[key] = row, last
            row.ledgers += 1
            row.superseded += stored.is_complete and key not in read
            if stored.key.ledger_id is not None:
                row.entries = ledger.entries
            if stored.index is not None:
                row.blocks += sum(
                    i.block_count for i in stored.index.ledgers if i.ledger_id == ledger.ledger_id
                )
        for key in [key for key, (_, last) in open_.items() if last <= ledger.ledger_id]:
            yield open_.pop(key)[0]
    yield from (row for row, _ in open_.values())


def _new(found: FoundLedger, stored: StoredObject) -> Row:
    row = Row(
        name=_name(found),
        cluster=found.cluster,
        ledger_id=found.ledger.ledger_id,
        keys=(stored.key.data_key,),
        topics=1,
        attempts=1,
        data_bytes=stored.data_bytes or 0,
        formats=(stored.key.object_format.value,),
        problem=None if stored.complaint is None else stored.complaint[0],
    )
    row.see(stored)
    return row


def _last_ledger(stored: StoredObject, ledger_id: int) -> int:
    return (
        max((each.ledger_id for each in stored.index.ledgers), default=ledger_id)
        if stored.index
        else ledger_id
    )


def _joined(known: tuple[str, ...], new: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """Patterns of topics' names, with `*`, `?` and `[…]`; none of them are all topics.

    A pattern also means all partitions of a topic that it matches; a tenant or a namespace, all that is in it. A name
    with these characters means its topic as well.
    """

    patterns: Sequence[str]

    def __call__(self, topic: TopicName | None) -> bool:
        """Return whether a topic is meant; None are objects that name none, which only no pattern means."""
        if not self.patterns:
            return True
        if topic is None:
            return False
        names = [name.removeprefix(_DOMAIN) for name in (topic.full, topic.base)]
        return any(_matches(name, each.removeprefix(_DOMAIN)) for each in self.patterns for name in names)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern.rstrip('/')}/*")


def recorded_ledgers(
    tier: Tier,
    records: Records,
    *,
    prefix: str = "",
    wanted: Callable[[TopicName | None], bool] = lambda _: True,
) -> Iterator[FoundLedger]:
    """Yield the ledgers that records name, of the chosen topics; memory depends on some topics' records only.

    Raises:
        StoreError, FormatError: of the records or the tier.
    """
    topics = sorted((each for each in records.topics() if wanted(each)), key=lambda each: each.full)
    for part in in_parts(topics):
        infos = records.read(part)
        priorities = {} if tier.hot is None else read_priorities(records, infos)
        for topic in record_catalogue(tier, infos, prefix=prefix, priorities=priorities).topics:
            name = None if topic.name is None else managed_ledger_of_topic(topic.name)
            for ledger in topic.ledgers:
                yield FoundLedger(managed_ledger=name, cluster=topic.cluster, ledger=ledger)


_T = TypeVar("_T")


class Spool(TemporaryTables, Generic[_T]):
    """Keeps values with what they are sorted by; a context manager. Only the thread that made it uses it."""

    def __init__(self) -> None:
        super().__init__("CREATE TABLE kept (id INTEGER PRIMARY KEY, place, packed BLOB)")

    def add(self, value: _T, place: str | float | None = None) -> None:
        """Keep a value at its place; those of one place stay in the order in which they came."""
        packed = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        self._file.execute("INSERT INTO kept (place, packed) VALUES (?, ?)", (place, packed))

    def sorted(self, *, descending: bool = False, limit: int | None = None) -> Iterator[_T]:
        """The values by their places, the first `limit` of them; what has no place comes last."""
        order = "DESC" if descending else "ASC"
        query = f"SELECT id FROM kept ORDER BY place IS NULL, place {order}, id LIMIT ?"  # noqa: S608
        for (number,) in self._file.execute(query, (-1 if limit is None else limit,)):
            (packed,) = self._file.execute("SELECT packed FROM kept WHERE id = ?", (number,)).fetchone()
            yield pickle.loads(packed)  # noqa: S301 (written by this process, to a file that has no name)
