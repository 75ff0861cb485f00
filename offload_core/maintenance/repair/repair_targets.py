"""Objects and ledgers that a repair is for, and what managed ledgers' records say of them.

Records tell whose an object is, which entries it must hold, and whether it is read. What was asked for by name must be
there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from uuid import UUID

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.repair.damaged_contents import Expected
from offload_core.maintenance.repair.quarantine import is_put_aside
from offload_core.maintenance.verify.pair_checks import examine
from offload_core.metadata.catalogue import Records, TopicName, parse_topic, read_each
from offload_core.metadata.catalogue.listing import find_pair, stream_pairs
from offload_core.metadata.catalogue.topics import is_wanted, managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    replaced_of,
)
from offload_core.metadata.records.offload_context import DAMAGED_PROPERTY
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, MetadataError, OptionError


@dataclass(slots=True, kw_only=True)
class RecordedAttempt:
    """One attempt as records have it.

    Attributes:
        is_complete: a record says that it may be read.
        was_replaced: a record remembers that another copy took its place.
        expected, infos: of each ledger that has a share of it.
        hot: ledgers of it whose hot copies are there, by their records.
        is_marked: all that name it say that it is damaged.
        driver: which driver wrote it, and where.
    """

    managed_ledger: str
    topic: str
    is_complete: bool = False
    was_replaced: bool = False
    expected: dict[int, Expected] = field(default_factory=dict)
    infos: dict[int, LedgerInfo] = field(default_factory=dict)
    hot: list[int] = field(default_factory=list)
    is_marked: bool = True
    driver: DriverMetadata | None = None

    @property
    def is_replaced(self) -> bool:
        """True if another copy took its place, and no record reads it."""
        return self.was_replaced and not self.is_complete


def known_of(records: Records, uuids: Collection[UUID]) -> dict[UUID, RecordedAttempt]:
    """Return what records say of these attempts; a record that cannot be read says nothing.

    Raises:
        StoreError: the records cannot be read.
    """
    found: dict[UUID, RecordedAttempt] = {}
    for topic, info in readable(records, records.topics()):
        for ledger in info.ledgers:
            _take(found, uuids, topic, ledger)
    return found


def readable(records: Records, topics: Iterable[TopicName]) -> Iterator[tuple[TopicName, ManagedLedgerInfo]]:
    """The records of these topics that can be read. `StoreError`."""
    for topic, info in read_each(records, topics):
        if not isinstance(info, FormatError):
            yield topic, info


def _take(
    found: dict[UUID, RecordedAttempt], uuids: Collection[UUID], topic: TopicName, ledger: LedgerRecord
) -> None:
    info = ledger.info

    def known_as(uuid: UUID) -> RecordedAttempt:
        return found.setdefault(
            uuid, RecordedAttempt(managed_ledger=managed_ledger_of_topic(topic), topic=str(topic))
        )

    for replaced in _replaced(ledger):
        if replaced.uuid in uuids:
            known_as(replaced.uuid).was_replaced = True
    for copy in ledger.copies:
        if copy.uuid not in uuids:
            continue
        stop = copy.stop_entry_id
        if copy.segment is None and info.is_closed:
            stop = info.entries
        known = known_as(copy.uuid)
        known.is_complete |= copy.complete
        known.expected[info.ledger_id] = Expected(first=copy.begin_entry_id, stop=stop)
        known.infos[info.ledger_id] = info
        known.driver = copy.driver
        known.is_marked &= copy.driver is not None and copy.driver.get(DAMAGED_PROPERTY) == str(copy.uuid)
        if ledger.has_hot_copy:
            known.hot.append(info.ledger_id)


def _replaced(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """The copies that a ledger's record remembers; none if that cannot be read."""
    try:
        return replaced_of(ledger)
    except MetadataError:
        return ()


OpenRecords = Callable[[], AbstractContextManager[Records]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTargets:
    """Targets of a repair.

    Attributes:
        prefix: only objects whose keys begin so.
        keys: only these objects, data or index; none: all.
        ledger_ids: only objects of these ledgers; none: all.
        topics: only these, and partitions of them, by what objects or records say; none: all.
    """

    prefix: str = ""
    keys: Sequence[ObjectKey] = ()
    ledger_ids: frozenset[int] = frozenset()
    topics: Sequence[TopicName] = ()

    @property
    def prefixes(self) -> list[str]:
        """Return what the keys begin with of all that is wanted."""
        return sorted({stem_of(key) for key in self.keys}) or [self.prefix]

    def has_key(self, key: ObjectKey) -> bool:
        """Return whether an object may be of these, by its key."""
        if self.keys and key.data_key not in {each.data_key for each in self.keys}:
            return False
        return not self.ledger_ids or key.ledger_id is None or key.ledger_id in self.ledger_ids

    def has_ledger(self, topic: str | None, ledger_id: int | None) -> bool:
        """Return whether it is about one of these, by a topic's record."""
        return self.has_topic(topic) and (
            not self.ledger_ids or ledger_id is None or ledger_id in self.ledger_ids
        )

    def has_topic(self, topic: str | None) -> bool:
        """Return whether a topic is one of these."""
        return not self.topics or (topic is not None and is_wanted(parse_topic(topic), self.topics))

    def has_object(self, tier: Tier, key: ObjectKey) -> bool:
        """Return whether an object says that it is of one of these topics. `StoreError`."""
        name = None
        pair = find_pair(tier, key)
        if pair is not None:
            examined = examine(tier, pair)
            name = None if examined is None else examined.managed_ledger
        return name is not None and is_wanted(topic_of_managed_ledger(name), self.topics)

    def check(self, tier: Tier, records: OpenRecords | None) -> None:
        """Make sure that there is what was asked for by name.

        Raises:
            OptionError: something is not; it is named.
            StoreError: of the tier or the records.
        """
        for key in self.keys:
            is_there = find_pair(tier, key) is not None or is_put_aside(tier, key.data_key)
            if not is_there and not _is_recorded(key, records):
                raise OptionError("there is no such object", key=key.data_key)
        topics, ledger_ids = list(self.topics), set(self.ledger_ids)
        if records is not None and (topics or ledger_ids):
            with records() as opened:
                _take_recorded(opened, topics, ledger_ids)
        if topics or ledger_ids:
            _take_stored(tier, self.prefix, topics, ledger_ids)
        if topics:
            raise OptionError("there is nothing of this topic", found=topics[0])
        if ledger_ids:
            raise OptionError("there is nothing of this ledger", ledger_id=min(ledger_ids))


def stem_of(key: ObjectKey) -> str:
    """Return what all objects of a pair begin with."""
    return key.data_key.removesuffix("data") if key.is_mapfile else key.data_key


def _is_recorded(key: ObjectKey, records: OpenRecords | None) -> bool:
    if records is None:
        return False
    with records() as opened:
        return key.uuid in known_of(opened, {key.uuid})


def _take_recorded(records: Records, topics: list[TopicName], ledger_ids: set[int]) -> None:
    """Take out what records have."""
    names = records.topics()
    topics[:] = [each for each in topics if not any(is_wanted(topic, [each]) for topic in names)]
    if not ledger_ids:
        return
    for _, info in readable(records, names):
        ledger_ids.difference_update(ledger.ledger_id for ledger in info.ledgers)
        if not ledger_ids:
            return


def _take_stored(tier: Tier, prefix: str, topics: list[TopicName], ledger_ids: set[int]) -> None:
    """Take out what objects have; one that cannot be read may be of any ledger."""
    for pair in stream_pairs(tier, prefix):
        if pair.key.ledger_id is not None:
            ledger_ids.discard(pair.key.ledger_id)
        if not topics and not ledger_ids:
            return
        examined = examine(tier, pair) if topics or pair.key.ledger_id is None else None
        if examined is None:
            continue
        if examined.managed_ledger is not None:
            topic = topic_of_managed_ledger(examined.managed_ledger)
            topics[:] = [each for each in topics if not is_wanted(topic, [each])]
        if pair.key.ledger_id is None and not examined.extents:
            ledger_ids.clear()
        ledger_ids.difference_update(extent.ledger_id for extent in examined.extents)
