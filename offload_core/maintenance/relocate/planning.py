"""Plan of a relocation from a managed ledger's record: copies to move, copies that they replace, and those that stay.

A copy that is in the target already, in the requested format and through the requested filter, is done; so a relocation
that was broken off goes on with the rest. Ledgers are merged only if they follow each other and went through the same
filter, or none.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from uuid import UUID

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.codec.object_marks import FILTERED_TRANSACTIONS
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.known_tiers import is_another_place, is_same_place, place_text
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import (
    CopyForm,
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    Segment,
    segments_of,
)
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.writing.offload_filters import recorded_filters
from offload_hooks.errors import OptionError


class How(enum.Enum):
    """Way to make a new copy."""

    BYTES = "bytes"
    """The new objects are those of the old copy, byte by byte."""
    ENTRIES = "entries"
    """The entries are read, and written in another format."""
    FILTERED = "filtered"
    """The entries are read, go through a filter, and are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A new copy that is to be made, and replaces others.

    Attributes:
        ledger_ids: its ledgers, ascending; with `segment`, those whose records name that.
        segment: the only segment that it replaces; None for all copies of its ledgers.
        replaces: the attempts that it replaces.
        format: of its objects.
        entries, size_bytes: of its ledgers, by their record, if it has them; a segment may have fewer.
        filter: what takes the place of an entry that is left out, if it is `FILTERED`.
    """

    topic: TopicName
    ledger_ids: tuple[int, ...]
    form: CopyForm
    segment: UUID | None
    replaces: tuple[UUID, ...]
    how: How
    format: ObjectFormat
    entries: int
    size_bytes: int
    filter: FilterMode | None = None

    @property
    def name(self) -> str:
        """The managed ledger's name."""
        return managed_ledger_of_topic(self.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Ledgers whose cold copies stay where they are, with the reason."""

    topic: TopicName
    ledger_ids: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """Moves of one topic.

    Attributes:
        moves: in the topic's order.
        left: ledgers that cannot be moved.
        done: ledgers that have been moved.
        hot: ledgers that have no complete cold copy yet.
    """

    topic: TopicName
    moves: tuple[Move, ...]
    left: tuple[Left, ...]
    done: tuple[int, ...]
    hot: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Source, target and format of copies.

    Attributes:
        source, target: the two tiers, as `tier_record` has them; perhaps the same.
        format: of all new copies; None for each copy's own.
        merge_bytes: approximate bytes of payloads of the segments that ledgers are merged into; None to merge none.
        ledger_ids: only these ledgers, and segments with one of them; None for all.
        filter: copies that went through no filter are to go through that of transactions, which leaves this in the
            place of an entry; None for no filter.

    Raises:
        OptionError: they contradict each other.
    """

    source: DriverMetadata
    target: DriverMetadata
    format: ObjectFormat | None = None
    merge_bytes: int | None = None
    ledger_ids: frozenset[int] | None = None
    filter: FilterMode | None = None

    def __post_init__(self) -> None:
        if self.merge_bytes is not None:
            if self.filter is not None:
                raise OptionError("ledgers are filtered first, and merged by a second call")
            if self.merge_bytes < 1:
                raise OptionError("a segment has at least one byte", found=self.merge_bytes)
            if self.format not in (None, ObjectFormat.STREAMING):
                raise OptionError("merged ledgers are in streaming objects", found=self.format.value)
        is_changed = any(each is not None for each in (self.format, self.merge_bytes, self.filter))
        if is_same_place(self.target, self.source) and not is_changed:
            raise OptionError("the copies are there already", found=place_text(self.target))

    def is_there(self, driver: DriverMetadata | None) -> bool:
        """Return whether a copy is in the target."""
        if is_same_place(self.target, self.source):
            return not self.is_elsewhere(driver)
        if driver is None or not is_same_place(self.target, driver):
            return False
        return not is_same_place(self.source, driver)  # a record of a bucket alone may mean either

    def is_elsewhere(self, driver: DriverMetadata | None) -> bool:
        """Return whether a copy is in neither of the two tiers."""
        return driver is not None and is_another_place(self.source, driver)

    def wants(self, ledger_id: int) -> bool:
        """Return whether this ledger is to be moved."""
        return self.ledger_ids is None or ledger_id in self.ledger_ids


def plan_topic(topic: TopicName, info: ManagedLedgerInfo, wanted: Wanted) -> TopicPlan:
    """Plan the moves of a topic. `MetadataError`: its record contradicts itself."""
    return _Planning(topic, info, wanted).plan()


class _Planning:
    def __init__(self, topic: TopicName, info: ManagedLedgerInfo, wanted: Wanted) -> None:
        self._topic = topic
        self._info = info
        self._wanted = wanted
        self._moves: list[Move] = []
        self._left: list[Left] = []
        self._done: list[int] = []
        self._hot: list[int] = []

    def plan(self) -> TopicPlan:
        group: list[LedgerRecord] = []
        segments = {segment.uuid: segment for segment in segments_of(self._info)}
        for ledger in self._info.in_order:
            if ledger.info.is_closed and not ledger.info.entries:
                continue
            merged = self._merge(group, ledger)
            if not merged and not ledger.is_marked_for_deletion and self._wanted.wants(ledger.ledger_id):
                self._ledger(ledger, segments)
        self._end(group)
        return TopicPlan(
            topic=self._topic,
            moves=tuple(sorted(self._moves, key=lambda move: move.ledger_ids)),
            left=tuple(self._left),
            done=tuple(self._done),
            hot=tuple(self._hot),
        )

    def _merge(self, group: list[LedgerRecord], ledger: LedgerRecord) -> bool:
        """Add a ledger to the group that is merged, if it is to be; end the group if it cannot go on."""
        limit = self._wanted.merge_bytes
        if limit is None:
            return False
        context = ledger.context
        takes = (
            context is not None
            and context.complete
            and not context.segments
            and self._wanted.wants(ledger.ledger_id)
            and (not self._wanted.is_elsewhere(context.driver) or self._wanted.is_there(context.driver))
        )
        if group and (not takes or _filters(group[-1]) != _filters(ledger)):
            self._end(group)
        if not takes:
            return False
        group.append(ledger)
        if sum(each.info.size or 0 for each in group) >= limit:
            self._end(group)
        return True

    def _end(self, group: list[LedgerRecord]) -> None:
        if group:
            self._move(group, CopyForm.SEGMENT, How.ENTRIES, ObjectFormat.STREAMING)
            group.clear()

    def _ledger(self, ledger: LedgerRecord, segments: dict[UUID, Segment]) -> None:
        context = ledger.context
        if context is None or not ledger.has_complete_copy:
            self._hot.append(ledger.ledger_id)
        elif context.segments:
            self._segmented(ledger, segments)
        else:
            self._whole(ledger, context.driver)

    def _whole(self, ledger: LedgerRecord, driver: DriverMetadata | None) -> None:
        known = ObjectFormat.PIP17 if driver is None else driver.ledger_format
        format_ = self._wanted.format or known
        is_filtered = self._is_filtered(ledger)
        if self._wanted.is_elsewhere(driver) and not self._wanted.is_there(driver):
            self._leave(ledger, driver)
        elif isinstance(is_filtered, str):
            self._leave_why(ledger, is_filtered)
        elif is_filtered and self._wanted.is_there(driver) and format_ is known:
            self._done.append(ledger.ledger_id)
        elif is_filtered and format_ is known:
            self._move([ledger], CopyForm.LEDGER, How.BYTES, known)
        else:
            form = CopyForm.SEGMENT if format_ is ObjectFormat.STREAMING else CopyForm.LEDGER
            self._move([ledger], form, How.ENTRIES if is_filtered else How.FILTERED, format_)

    def _is_filtered(self, ledger: LedgerRecord) -> bool | str:
        """Return whether a ledger went through the filter that is wanted, or why it cannot; True if none is."""
        wanted, before = self._wanted.filter, recorded_filters(ledger)
        if wanted is None:
            return True
        if not before:
            return False
        for record in before:
            if (record.name, record.mode) != (FILTERED_TRANSACTIONS, wanted):
                left = f"left a {record.mode.value} for each entry"
                return f"it went through the filter {record.name} before, which {left}"
        complete = sum(copy.complete for copy in ledger.copies)
        return len(before) == complete or "a part of it went through the filter before"

    def _segmented(self, ledger: LedgerRecord, segments: dict[UUID, Segment]) -> None:
        context = ledger.context
        assert context is not None
        is_filtered = self._is_filtered(ledger)
        drivers = [share.driver or context.driver for share in context.segments if share.complete]
        away = [
            each for each in drivers if self._wanted.is_elsewhere(each) and not self._wanted.is_there(each)
        ]
        if self._wanted.format in (ObjectFormat.PIP17, ObjectFormat.MAPFILE):
            if away:
                self._leave(ledger, away[0])
            elif not ledger.is_fully_offloaded:
                self._leave_why(
                    ledger, "only a part of the ledger is in segments, and one object has all of it"
                )
            elif isinstance(is_filtered, str):
                self._leave_why(ledger, is_filtered)
            else:
                how = How.ENTRIES if is_filtered else How.FILTERED
                self._move([ledger], CopyForm.LEDGER, how, self._wanted.format)
            return
        if is_filtered is not True:
            why = (
                is_filtered
                or "it is in segments, which become one object as they are filtered: --format pip17"
            )
            self._leave_why(ledger, why)
            return
        is_done = True
        for share in context.segments:
            driver = share.driver or context.driver
            segment = segments.get(share.uuid)
            if not share.complete or self._wanted.is_there(driver):
                continue
            is_done = False
            if self._wanted.is_elsewhere(driver):
                self._leave(ledger, driver)
            elif segment is not None and share.uuid not in {move.segment for move in self._moves}:
                self._move(
                    [each for each in self._info.in_order if each.ledger_id in segment.ledger_ids],
                    CopyForm.SEGMENT,
                    How.BYTES,
                    ObjectFormat.STREAMING,
                    segment=segment.uuid,
                )
        if is_done:
            self._done.append(ledger.ledger_id)

    def _move(
        self,
        ledgers: list[LedgerRecord],
        form: CopyForm,
        how: How,
        format_: ObjectFormat,
        *,
        segment: UUID | None = None,
    ) -> None:
        replaces = (
            [segment] if segment is not None else [uuid for each in ledgers for uuid in each.copy_uuids]
        )
        self._moves.append(
            Move(
                topic=self._topic,
                ledger_ids=tuple(each.ledger_id for each in ledgers),
                form=form,
                segment=segment,
                replaces=tuple(dict.fromkeys(replaces)),
                how=how,
                format=format_,
                entries=sum(each.info.entries or 0 for each in ledgers),
                size_bytes=sum(each.info.size or 0 for each in ledgers),
                filter=self._wanted.filter if how is How.FILTERED else None,
            )
        )

    def _leave(self, ledger: LedgerRecord, driver: DriverMetadata | None) -> None:
        assert driver is not None
        self._leave_why(ledger, f"its copy is somewhere else: {place_text(driver)}")

    def _leave_why(self, ledger: LedgerRecord, why: str) -> None:
        self._left.append(Left(topic=self._topic, ledger_ids=(ledger.ledger_id,), why=why))


def _filters(ledger: LedgerRecord) -> set[tuple[str, str]]:
    return {(record.name, record.mode.value) for record in recorded_filters(ledger)}
