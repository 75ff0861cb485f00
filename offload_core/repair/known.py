"""What managed ledgers' records say of objects: whose they are, which entries they must hold, whether they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from offload_core.catalogue import Records, TopicName
from offload_core.catalogue.topics import managed_ledger_of_topic
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.metadata import DriverMetadata, LedgerRecord, ManagedLedgerInfo, OtherCopy, replaced_of
from offload_core.metadata.offload_context import DAMAGED_PROPERTY
from offload_core.repair.contents import Expected
from offload_hooks.errors import FormatError, MetadataError

_TOPICS_AT_ONCE = 256


@dataclass(slots=True, kw_only=True)
class Known:
    """What records say of one attempt.

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
        """Whether another copy took its place, and no record reads it."""
        return self.was_replaced and not self.is_complete


def known_of(records: Records, uuids: Collection[UUID]) -> dict[UUID, Known]:
    """What records say of these attempts; a record that cannot be read says nothing.

    Raises:
        StoreError: the records cannot be read.
    """
    found: dict[UUID, Known] = {}
    topics = iter(records.topics())
    while some := list(islice(topics, _TOPICS_AT_ONCE)):
        for topic, info in read_some(records, some):
            for ledger in info.ledgers:
                _take(found, uuids, topic, ledger)
    return found


def read_some(records: Records, topics: list[TopicName]) -> Iterator[tuple[TopicName, ManagedLedgerInfo]]:
    """The records of these topics that can be read. `StoreError`."""
    try:
        yield from records.read(topics).items()
    except FormatError:
        if len(topics) > 1:
            for topic in topics:
                yield from read_some(records, [topic])


def _take(found: dict[UUID, Known], uuids: Collection[UUID], topic: TopicName, ledger: LedgerRecord) -> None:
    context, info = ledger.context, ledger.info
    if context is None:
        return
    for copy in _replaced(ledger):
        if copy.uuid in uuids:
            known = found.setdefault(
                copy.uuid, Known(managed_ledger=managed_ledger_of_topic(topic), topic=str(topic))
            )
            known.was_replaced = True
    shares = [
        (
            share.uuid,
            share.complete,
            first,
            None if share.end_entry_id is None else share.end_entry_id + 1,
            share.driver,
        )
        for share, first in zip(context.segments, context.first_entry_ids(), strict=True)
    ]
    if not shares and context.uuid is not None:
        stop = info.entries if info.is_closed else None
        shares = [(context.uuid, context.complete, 0, stop, context.driver)]
    for uuid, is_complete, first, stop, driver in shares:
        if uuid not in uuids:
            continue
        known = found.setdefault(uuid, Known(managed_ledger=managed_ledger_of_topic(topic), topic=str(topic)))
        known.is_complete |= is_complete
        known.expected[info.ledger_id] = Expected(first=first, stop=stop)
        known.infos[info.ledger_id] = info
        known.driver = driver or context.driver
        known.is_marked &= known.driver is not None and known.driver.get(DAMAGED_PROPERTY) == str(uuid)
        if ledger.has_hot_copy:
            known.hot.append(info.ledger_id)


def _replaced(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """The copies that a ledger's record remembers; none if that cannot be read."""
    try:
        return replaced_of(ledger)
    except MetadataError:
        return ()
