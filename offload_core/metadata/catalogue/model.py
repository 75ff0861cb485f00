"""The catalogue of a tier: topics, their ledgers in order, the copies of each, and their problems.

A ledger is identified by cluster, managed ledger and id: ids of two clusters in one bucket collide. Only complete
copies are read. Where a ledger has several, the newest counts; a streaming ledger may have several extents. Objects
that name no cluster (MapFiles) belong to the one that offloaded the rest of their topic, if it is one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import LedgerIndex, ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.object_marks import NO_MARKS, ObjectMarks
from offload_core.metadata.catalogue.copy_check import CopyStat
from offload_core.metadata.catalogue.summaries import bytes_text, count_text, lines_of, table_of, topic_text
from offload_core.metadata.catalogue.topics import UNKNOWN_TOPIC, TopicName, topic_of_managed_ledger
from offload_core.metadata.records import LedgerRecord

_NEVER = datetime.min.replace(tzinfo=timezone.utc)


LOST_ENTRIES = "lost-entries"
"""The code of an object that is read, although it lacks entries."""


class Problem(enum.Enum):
    """Reason why an object is not read, by a stable code."""

    NO_INDEX = "no-index"
    NO_DATA = "no-data"
    BROKEN_INDEX = "broken-index"
    BROKEN_METADATA = "broken-metadata"
    WRONG_LENGTH = "wrong-length"
    UNKNOWN_VERSION = "unknown-version"
    UNFINISHED = "unfinished"
    MISSING = "missing"
    OTHER_FORMAT = "other-format"
    RECORD_MISMATCH = "record-mismatch"


_AFTER_INDEX = (
    Problem.NO_DATA,
    Problem.WRONG_LENGTH,
    Problem.BROKEN_INDEX,
    Problem.BROKEN_METADATA,
    Problem.UNKNOWN_VERSION,
)
"""Problems of objects with an index: they were complete once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """A data object and its index: one attempt.

    Attributes:
        cluster: as the user metadata has it; None without.
        managed_ledger: the managed ledger's name; None without (Pulsar's own streaming objects have none).
        data_bytes: size of the data object, None if there is none.
        modified_at: None if the tier has neither object, and only a record names them.
        index: None if it cannot be read, or has not been read yet. A streaming object with the problem that its data is
            gone or of another length, or its user metadata cannot be read, has it: it names the ledgers with a loss.
        detail: a description of the problem.
        checksum_key: the data object's checksum file (`.crc`), if there is one.
        index_checksum_bytes: size of the index's checksum file, if there is one.
        marks: entries that it lacks, from its user metadata.
        storage_class: the store's own name of the data object's class; None if its listing does not have it.
        version: of its format, in the user metadata; None without.
        index_contents: the index's bytes, where they are known and `index` is not read from them yet.
    """

    key: ObjectKey
    cluster: str | None
    managed_ledger: str | None
    data_bytes: int | None
    index_bytes: int | None
    modified_at: datetime | None
    index: ObjectIndex | None
    problem: Problem | None = None
    detail: str | None = None
    checksum_key: str | None = None
    index_checksum_bytes: int | None = None
    marks: ObjectMarks = NO_MARKS
    storage_class: str | None = None
    version: str | None = None
    index_contents: bytes | None = field(default=None, repr=False)

    @property
    def stat(self) -> CopyStat | None:
        """The stat of its data object, for `check_copy`; None without one."""
        if self.data_bytes is None:
            return None
        return CopyStat(
            size_bytes=self.data_bytes,
            version=self.version,
            managed_ledger=self.managed_ledger,
            marks=self.marks,
        )

    @property
    def is_complete(self) -> bool:
        """True if it can be read: it has an index, and the data object has the length in it.

        Before the index was read: both objects exist.
        """
        return self.problem is None

    @property
    def complaint(self) -> tuple[str, str] | None:
        """A stable code and a description: why it is not read, or which entries it lacks. None if nothing is wrong."""
        if self.problem is not None:
            return self.problem.value, self.detail or ""
        if self.marks.lost is not None:
            return LOST_ENTRIES, f"saved from a damaged object; it lacks {self.marks.lost.pack()}"
        return None

    @property
    def is_lost(self) -> bool:
        """True if it was complete, and cannot be read any more: an index is written after its data, deleted before.

        For a MapFile, a missing or broken index is no loss: its files grow while it is written.
        """
        if self.key.is_mapfile:
            return self.problem is Problem.NO_DATA
        return self.problem in _AFTER_INDEX

    @property
    def is_unread(self) -> bool:
        """True if it has no known problem, and its index has not been read yet."""
        return self.problem is None and self.index is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One ledger: the extents to read it from, in order of their entries, and all attempts at it, oldest first.

    `extents` is empty if no attempt is complete, or the index of the complete one has not been read. `record` is None
    for a catalogue from the bucket alone. With a record, a ledger may have no attempts: it is in BookKeeper only.

    Attributes:
        hot: its copy in the hot tier, where that may be read; it is among `extents`, or to be read in their place.
        is_first: it is the first of its topic, of which no object is unknown what it holds. Without a record it
            is unknown then whether its first entries were ever here.
        unread: the one copy that it is read from, if the index of that has not been read yet.
    """

    ledger_id: int
    extents: tuple[LedgerExtent, ...]
    attempts: tuple[StoredObject, ...]
    record: LedgerRecord | None = None
    hot: LedgerExtent | None = None
    is_first: bool = False
    unread: StoredObject | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unread = () if self.extents else (stored for stored in self.attempts if stored.is_unread)
        object.__setattr__(self, "unread", next(iter(unread), None))  # plans ask for it ten times

    @property
    def may_be_trimmed(self) -> bool:
        """True if its first entries are lost, or it was trimmed and lies in one object with a later ledger."""
        if not self.is_first or not self.extents or not self.extents[0].first_entry_id:
            return False
        index = self.stored(self.extents[0]).index
        return index is not None and any(each.ledger_id > self.ledger_id for each in index.ledgers)

    @property
    def entries(self) -> int | None:
        """The number of entries by its record or metadata; None if neither has it."""
        if self.record is not None and self.record.info.entries is not None:
            return self.record.info.entries
        if not self.extents:
            return None
        metadata = self.extents[-1].ledger.metadata
        if isinstance(metadata, LedgerMetadata):
            return None if metadata.last_entry_id is None else metadata.last_entry_id + 1
        return metadata.entries

    @property
    def has_nothing_to_lose(self) -> bool:
        """True if it has no entries, or is marked for deletion."""
        return self.entries == 0 or (self.record is not None and self.record.is_marked_for_deletion)

    @property
    def is_lost(self) -> bool:
        """True if it has no copy that is read, and had one: by its record, or because an index remains."""
        if self.is_readable or self.has_nothing_to_lose:
            return False
        if self.record is not None and self.record.has_complete_copy:
            return True
        return any(stored.is_lost for stored in self.attempts)

    @property
    def lost_tail(self) -> tuple[StoredObject, int] | None:
        """A segment that is lost after those that are read, and its first entry there; None if there is none.

        Only without a record; with one, a missing segment shows when the ledger is read.
        """
        if self.record is not None or not self.extents:
            return None
        if any(extent.object_key.ledger_id is not None for extent in self.extents):
            return None
        last = self.extents[-1].ledger.blocks[-1].first_entry_id
        lost = [
            (stored, ledger.first_entry_id)
            for stored in self.attempts
            if stored.is_lost and stored.index is not None
            for ledger in stored.index.ledgers
            if ledger.ledger_id == self.ledger_id and ledger.first_entry_id > last
        ]
        return min(lost, key=lambda each: each[1], default=None)

    @property
    def was_offloaded(self) -> bool:
        """True if some of it was, by its record; without one, if there are attempts."""
        return bool(self.attempts) if self.record is None else self.record.has_complete_copy

    def stored(self, extent: LedgerExtent) -> StoredObject:
        """The object of one of its extents."""
        return next(stored for stored in self.attempts if stored.key == extent.key)

    @property
    def is_readable(self) -> bool:
        """True if it has a copy that is read, or may be read."""
        return bool(self.extents) or self.unread is not None

    @property
    def data_bytes(self) -> int:
        """Bytes in the store that a read of all its entries fetches."""
        unread = self.unread
        if unread is not None:
            return unread.data_bytes or 0
        return sum(extent.data_bytes for extent in self.extents)

    @property
    def why_not_read(self) -> str:
        """The problems of its attempts, if it cannot be read."""
        if not self.attempts:
            is_hot = self.record is None or self.record.has_hot_copy
            return f"by its record it is {'' if is_hot else 'not '}in BookKeeper{' only' if is_hot else ' any more'}"
        return "; ".join(f"{stored.key.data_key}: {stored.detail}" for stored in self.attempts)

    @property
    def formats(self) -> tuple[ObjectFormat, ...]:
        """The formats of its extents that lie in objects, each once."""
        return tuple(dict.fromkeys(each.object_format for each in self.extents if each.key is not None))

    @property
    def superseded(self) -> tuple[StoredObject, ...]:
        """Complete attempts that are not read, since newer ones are."""
        read = {extent.key for extent in self.extents}
        return tuple(
            stored
            for stored in self.attempts
            if stored.is_complete and not stored.is_unread and stored.key not in read
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic of one cluster and its ledgers, by ascending id. `name` is None for objects that name none.

    `lost` are objects that were complete and are not read, and whose ledgers are not known: streaming objects without
    a right index.
    """

    cluster: str | None
    name: TopicName | None
    ledgers: tuple[Ledger, ...]
    lost: tuple[StoredObject, ...] = ()

    def __repr__(self) -> str:
        return f"<Topic {topic_text(self)}>"

    def facts(self) -> tuple[str, str, str, str]:
        """Its name, and how many ledgers, entries and bytes it has, as text."""
        counts = [each.entries for each in self.ledgers]  # not known of an index that was not read yet
        return (
            self.label.removeprefix("persistent://"),
            count_text(len(self.ledgers), "ledger"),
            "–" if None in counts else count_text(sum(each or 0 for each in counts), "entry"),
            bytes_text(sum(each.data_bytes for each in self.ledgers)),
        )

    @property
    def full_name(self) -> str | None:
        """The name as text, None if it is not known."""
        return self.name.full if self.name else None

    @property
    def partition(self) -> int:
        """The partition's number, −1 if the topic has no partitions or no name."""
        return self.name.partition if self.name else -1

    @property
    def label(self) -> str:
        """The name, or a label for none."""
        return self.full_name or UNKNOWN_TOPIC


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All topics of a tier, by name and cluster, and the objects that belong to no known ledger."""

    topics: tuple[Topic, ...]
    strays: tuple[StoredObject, ...]

    def __repr__(self) -> str:
        return lines_of(self._heading, self.topics)

    def _repr_html_(self) -> str:
        return table_of(self._heading, self.topics)

    @property
    def _heading(self) -> str:
        size = sum(ledger.data_bytes for topic in self.topics for ledger in topic.ledgers)
        problems = count_text(len(self.problems), "problem")
        return f"Catalogue of {count_text(len(self.topics), 'topic')}, {bytes_text(size)}, {problems}"

    @cached_property
    def problems(self) -> tuple[StoredObject, ...]:
        """All objects with a problem, by key."""
        found = [
            stored
            for topic in self.topics
            for ledger in topic.ledgers
            for stored in ledger.attempts
            if stored.complaint is not None
        ]
        return tuple(
            sorted({stored.key.data_key: stored for stored in [*found, *self.strays]}.values(), key=_by_key)
        )

    @cached_property
    def complete(self) -> dict[ObjectKey, StoredObject]:
        """All objects that are complete, by the key of their data object."""
        return {
            stored.key: stored
            for topic in self.topics
            for ledger in topic.ledgers
            for stored in ledger.attempts
            if stored.is_complete
        }


def _by_key(stored: StoredObject) -> str:
    return stored.key.data_key


def build_catalogue(objects: Iterable[StoredObject]) -> Catalogue:
    """Sort objects into topics and ledgers, and choose the extents that each ledger is read from."""
    attempts: dict[tuple[str | None, str | None], dict[int, list[StoredObject]]] = {}
    strays = []
    objects = list(objects)
    clusters = _clusters(objects)
    for stored in objects:
        ledger_ids = (
            [ledger.ledger_id for ledger in stored.index.ledgers] if stored.index else [stored.key.ledger_id]
        )
        if ledger_ids == [None]:
            strays.append(stored)
            continue
        cluster = stored.cluster or clusters.get(stored.managed_ledger)
        topic = attempts.setdefault((cluster, stored.managed_ledger), {})
        for ledger_id in ledger_ids:
            if ledger_id is not None:
                topic.setdefault(ledger_id, []).append(stored)
    unknown = {stored.managed_ledger for stored in strays}
    lost: dict[tuple[str | None, str | None], list[StoredObject]] = {}
    for stored in sorted(strays, key=_by_key):
        if stored.is_lost and stored.managed_ledger is not None:
            whose = (stored.cluster or clusters.get(stored.managed_ledger), stored.managed_ledger)
            lost.setdefault(whose, []).append(stored)
            attempts.setdefault(whose, {})
    topics = [
        Topic(
            cluster=cluster,
            name=None if managed_ledger is None else topic_of_managed_ledger(managed_ledger),
            ledgers=_build_ledgers(
                ledgers, is_all=managed_ledger is not None and managed_ledger not in unknown
            ),
            lost=tuple(lost.get((cluster, managed_ledger), ())),
        )
        for (cluster, managed_ledger), ledgers in attempts.items()
    ]
    topics.sort(key=lambda topic: (topic.name is None, topic.label, topic.cluster or ""))
    return Catalogue(topics=tuple(topics), strays=tuple(sorted(strays, key=_by_key)))


def _clusters(objects: Sequence[StoredObject]) -> dict[str | None, str]:
    """Managed ledger → the cluster that offloaded it, where there is exactly one."""
    found: dict[str, set[str]] = {}
    for stored in objects:
        if stored.managed_ledger is not None and stored.cluster is not None:
            found.setdefault(stored.managed_ledger, set()).add(stored.cluster)
    return {name: clusters.pop() for name, clusters in found.items() if len(clusters) == 1}


def _build_ledgers(attempts: Mapping[int, Sequence[StoredObject]], *, is_all: bool) -> tuple[Ledger, ...]:
    """A topic's ledgers, by the attempts at each; `is_all` if of no object of it is unknown what it holds."""
    ledgers = [build_ledger(ledger_id, attempts[ledger_id]) for ledger_id in sorted(attempts)]
    if is_all:
        ledgers[0] = replace(ledgers[0], is_first=True)
    return tuple(ledgers)


def build_ledger(ledger_id: int, attempts: Sequence[StoredObject]) -> Ledger:
    """A ledger of these attempts, in any order; one whose index is unread is its only complete one."""
    if len(attempts) > 1:
        attempts = sorted(attempts, key=lambda stored: (stored.modified_at or _NEVER, stored.key.data_key))
    return Ledger(ledger_id=ledger_id, extents=_choose_extents(ledger_id, attempts), attempts=tuple(attempts))


def _choose_extents(ledger_id: int, attempts: Sequence[StoredObject]) -> tuple[LedgerExtent, ...]:
    """The newest whole copy; without one, the newest of each segment's copies, up to where the next begins."""
    newest: dict[int, LedgerExtent] = {}
    for stored in attempts:
        if stored.index is None or not stored.is_complete:
            continue
        ledger = next(ledger for ledger in stored.index.ledgers if ledger.ledger_id == ledger_id)
        if stored.index.object_format is not ObjectFormat.STREAMING:
            newest = {-1: extent_of(stored, ledger)}
        elif -1 not in newest:
            newest[ledger.first_entry_id] = extent_of(stored, ledger)
    return cut_extents([newest[first] for first in sorted(newest)]) if newest else ()


def extent_of(
    stored: StoredObject, ledger: LedgerIndex, *, recorded_begin: int | None = None
) -> LedgerExtent:
    """The entries of a ledger in an object; `recorded_begin` is its recorded first entry."""
    begin = recorded_begin
    if stored.key.ledger_id is not None:
        begin = 0
    elif not stored.marks.has_gaps:
        begin = ledger.first_entry_id
    return LedgerExtent(
        key=stored.key,
        ledger=ledger,
        begin_entry_id=begin,
        stop_entry_id=ledger.end_entry_id,
        marks=stored.marks,
        sequence_file=stored.index.sequence_file if stored.index else None,
        directory=stored.index.directory if stored.index else None,
        checksum_key=stored.checksum_key,
    )


def cut_extents(extents: Sequence[LedgerExtent]) -> tuple[LedgerExtent, ...]:
    """Extents in order of their first entries, each up to where the next begins, the last to its own end."""
    following = [extent.first_entry_id for extent in extents[1:]]
    return tuple(
        replace(extent, stop_entry_id=stop) for extent, stop in zip(extents, following, strict=False)
    ) + tuple(extents[-1:])
