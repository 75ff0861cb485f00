"""The life of a managed ledger's segments, with its record.

    assign     recorded → opened                                        → blocks → complete: recorded
    resume     attempt, if its lease is not held, recorded as failed → its objects deleted → another recorded → opened
    forget     recorded as failed → its objects deleted → forgotten

The record is the commit point of each step, and it comes before what cannot be undone: a crash between any two lines
leaves every entry in the hot tier, and the next owner of the topic finds the segment in its record. Source: PIP-76;
docs/formats/metadata.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

from offload_core.format.codec.ledger_info import LedgerInfo
from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    abandon_attempt,
    forget_attempt,
)
from offload_core.metadata.records.segments import (
    Segment,
    abandon_segment,
    assign_segment,
    complete_segment,
    extend_segment,
    find_segment,
    forget_segment,
    renew_segment,
    resume_segment,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import Change
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_core.writing.offload.running_attempt import (
    check_not_alive,
    check_over,
    clean_up,
    lease_from,
    working_on,
)
from offload_core.writing.offload.segment_offloader import (
    Offered,
    OfferResult,
    OffloadHandle,
    SegmentFilter,
    SegmentOffloader,
    segment_key,
)
from offload_core.writing.offload.segment_upload import OffloadedSegment, SegmentOutcome
from offload_hooks.errors import AttemptError, OffloadError, UnknownTopicError
from offload_hooks.ledger_stores import EntryBatch

_log = logging.getLogger(__name__)

TiersOf = Callable[[], AbstractContextManager[KnownTiers]]
"""The tiers of a topic, open until the context is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentBounds:
    """Settings for writing segments; see `SegmentOffloader`."""

    max_segment_bytes: int
    block_bytes: int
    checksums: bool = False


class RecordedSegments:
    """Segments of one managed ledger.

    Args:
        records: the managed ledgers' records.
        update: changes this one's, as its owner.
        tiers: where segments go, and where others of them are.
        executor, budget: see `SegmentOffloader`.
        announce: told of each attempt whose objects are about to be deleted: its first ledger, its uuid, why. If it
            raises, they are not.
        now_ms: the time, in ms since 1970, UTC.
        lease_s: how long an attempt is left alone by others after it was last heard of.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        name: str,
        update: Callable[[Change], ManagedLedgerInfo],
        tiers: TiersOf,
        *,
        executor: Executor,
        budget: MemoryBudget,
        announce: Callable[[int, UUID, str], None],
        now_ms: Callable[[], int],
        lease_s: float,
    ) -> None:
        self.records = records
        self.name = name
        self.update = update
        self.now_ms = now_ms
        self.lease_s = lease_s
        self._tiers = tiers
        self._executor = executor
        self._budget = budget
        self._announce = announce

    def assign(
        self,
        begin: EntryPosition,
        bounds: SegmentBounds,
        end: EntryPosition | None = None,
        segment_filter: SegmentFilter | None = None,
    ) -> RecordedSegment:
        """Record a segment and open it; what it gets goes through `segment_filter`.

        Raises:
            AttemptError: see `assign_segment`.
            OptionError: the tier or the budget takes no such blocks; nothing was recorded.
            OwnershipLostError, StoreError: of the record.
        """

        def record(uuid: UUID, driver: DriverMetadata) -> ManagedLedgerInfo:
            now = self.now_ms()
            lease = lease_from(now, self.lease_s)
            return self.update(
                lambda info: assign_segment(info, uuid, begin, driver, now, end=end, lease=lease)
            )

        return self._open(bounds, segment_filter, record)

    def resume(
        self, old: Segment, bounds: SegmentBounds, segment_filter: SegmentFilter | None = None
    ) -> RecordedSegment:
        """Clean up after an attempt that did not come to its end, and make another at the same positions.

        Its entries go through the filter anew, as it is now.

        Raises:
            LiveAttemptError: its lease is held; nothing was changed.
            OptionError: its objects lie in a tier that is not configured; or as `assign`.
            OwnershipLostError, AttemptError, StoreError: of the record, the tier and the audit log.
        """
        self._clean(old, "its segment was left unfinished, and is offloaded anew")

        def record(uuid: UUID, driver: DriverMetadata) -> ManagedLedgerInfo:
            now = self.now_ms()
            lease = lease_from(now, self.lease_s)
            return self.update(lambda info: resume_segment(info, old.uuid, uuid, driver, now, lease=lease))

        return self._open(bounds, segment_filter, record)

    def forget(self, old: Segment) -> None:
        """Clean up after an attempt at entries that are not there any more. Errors as `resume`."""
        why = "the entries of its segment are not there any more"
        self._clean(old, why, partial(forget_segment, uuid=old.uuid))

    def clear(self, ledger: LedgerRecord) -> None:
        """Clean up after an attempt at a whole ledger that did not come to its end. Errors as `resume`."""
        context, ledger_id = ledger.context, ledger.ledger_id
        assert context is not None
        uuid = context.uuid
        assert uuid is not None

        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            check_not_alive(info.ledger(ledger_id), self.now_ms())
            return abandon_attempt(info, ledger_id, uuid)

        key = ObjectKey(folder="", uuid=uuid, ledger_id=ledger_id, is_index=False)
        why = "its offload was left unfinished, and segments follow"
        clean_up(
            self.update,
            abandon,
            partial(self._delete, key, context.driver, ledger_id, why),
            partial(forget_attempt, ledger_id=ledger_id, uuid=uuid),
        )

    def delete_lost(self, segment: RecordedSegment) -> None:
        """Delete what an attempt of ours has in the tier, if another took its place in the record; see `give_up`."""
        if not segment.has_ended:
            return
        try:
            known = self.records.read(self.name)
            if known is None or find_segment(known.info, segment.uuid) is None:
                why = "another attempt took its place"
                self._delete(segment_key(segment.uuid), segment.driver, segment.begin.ledger_id, why)
        except OffloadError as error:
            _log.warning("attempt %s of %s is not deleted yet: %s", segment.uuid, self.name, error)

    def _clean(self, old: Segment, why: str, forget: Change | None = None) -> None:
        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            known = find_segment(info, old.uuid)
            if known is not None and not known.is_finished:
                check_over(known.uuid, known.driver, self.now_ms(), known.begin.ledger_id)
            return abandon_segment(info, old.uuid)

        delete = partial(self._delete, segment_key(old.uuid), old.driver, old.begin.ledger_id, why)
        clean_up(self.update, abandon, delete, forget)

    def _delete(self, key: ObjectKey, driver: DriverMetadata | None, ledger_id: int, why: str) -> None:
        with self._tiers() as tiers:
            tier = tiers.find(driver)
            self._announce(ledger_id, key.uuid, why)
            delete_attempt(tier, key)

    def _open(
        self,
        bounds: SegmentBounds,
        segment_filter: SegmentFilter | None,
        record: Callable[[UUID, DriverMetadata], ManagedLedgerInfo],
    ) -> RecordedSegment:
        uuid = uuid4()
        with ExitStack() as held:
            tier = held.enter_context(self._tiers()).current
            held.enter_context(working_on(uuid))
            offloader = SegmentOffloader(
                tier,
                budget=self._budget,
                executor=self._executor,
                max_block_bytes=bounds.block_bytes,
                checksums=bounds.checksums,
            )
            driver = tier_record(tier)
            segment = find_segment(record(uuid, driver), uuid)
            assert segment is not None
            handle = offloader.open_segment(
                uuid,
                segment.begin,
                {TOPIC_KEY: self.name},
                max_segment_bytes=bounds.max_segment_bytes if segment.end is None else None,
                segment_filter=segment_filter,
            )
            return RecordedSegment(self, segment, handle, segment_filter, held.pop_all())


class RecordedSegment:
    """A segment that this process is at; used by one thread at a time.

    Attributes:
        next: the entry that is offered next.
        filter: what it is that entries go through; None for nothing.
        is_closed: it takes no more entries.
        lease_due_ms: when its lease is to be renewed.
    """

    def __init__(
        self,
        segments: RecordedSegments,
        segment: Segment,
        handle: OffloadHandle,
        segment_filter: SegmentFilter | None,
        held: ExitStack,
    ) -> None:
        self._segments = segments
        self._held = held
        self._handle = handle
        self._ledger_ids = set(segment.ledger_ids)
        self.uuid = segment.uuid
        self.begin = self.next = segment.begin
        self.end = segment.end
        self.driver = segment.driver
        self.filter = segment_filter
        self.is_closed = False
        self._note_lease()

    @property
    def outcome(self) -> SegmentOutcome:
        """Its outcome; see `OffloadHandle.result`."""
        return self._handle.result()

    @property
    def has_ended(self) -> bool:
        """True if its outcome is there."""
        return self.outcome.done()

    @property
    def last_offered(self) -> EntryPosition | None:
        """Its last entry so far; None if it has none."""
        return self._handle.last_offered()

    @property
    def stop(self) -> EntryPosition | None:
        """The first entry that its filter does not decide of yet; None for no bound."""
        return None if self.filter is None else self.filter.stop

    def can_offer(self, size_bytes: int) -> bool:
        """See `OffloadHandle.can_offer`."""
        return self._handle.can_offer(size_bytes)

    def offer(self, ledger_id: int, entries: EntryBatch) -> Offered:
        """See `OffloadHandle.offer_entries`; the segment is closed if it takes no more."""
        offered = self._handle.offer_entries(ledger_id, entries)
        self.next = EntryPosition(ledger_id, self.next.entry_id + offered.accepted)
        if offered.result is OfferResult.SEGMENT_CLOSED or self._handle.is_closed:
            self.is_closed = True
        return offered

    def extend(self, ended: LedgerInfo, ledger_id: int) -> None:
        """The ledger ended with what was offered, and the segment goes on in the next one: recorded first.

        Errors as `extend_segment` and of the record.
        """
        if ledger_id not in self._ledger_ids:
            self._segments.update(partial(extend_segment, uuid=self.uuid, ledger_id=ledger_id))
            self._ledger_ids.add(ledger_id)
        self._handle.end_ledger(ended)
        self.next = EntryPosition(ledger_id, 0)

    def close(self, ended: LedgerInfo | None = None) -> None:
        """No more entries; `ended` is the last ledger, if it ended with what was offered."""
        if ended is not None:
            self._handle.end_ledger(ended)
        self.is_closed = True
        self._handle.close()

    def renew_lease(self) -> None:
        """Renew the lease, if it is time. Errors as `renew_segment` and of the record."""
        now = self._segments.now_ms()
        if not 0 < self.lease_due_ms - now <= self._lease_step_ms:  # more is left if the clock was put back
            lease = lease_from(now, self._segments.lease_s)
            self._segments.update(partial(renew_segment, uuid=self.uuid, lease=lease))
            self._note_lease()

    @property
    def failure(self) -> BaseException | None:
        """Of a segment that has ended: why it failed; None if it lies in the tier."""
        return self.outcome.exception()

    def complete(self) -> OffloadedSegment:
        """Record a segment that has ended and did not fail; it can be called again.

        Errors as `complete_segment` and of the record.
        """
        offloaded = self.outcome.result()
        now = self._segments.now_ms()
        records = {at: each.pack(short=True) for at, each in offloaded.filter_records.items()}
        self._segments.update(
            partial(
                complete_segment,
                uuid=self.uuid,
                end=offloaded.end,
                end_entry_ids=offloaded.end_entry_ids,
                offloaded_ms=now,
                filter_records=records,
            )
        )
        self.release()
        return offloaded

    def give_up(self) -> None:
        """End the attempt, and record that it failed, so that the next one need not wait; what fails is logged."""
        self._handle.abort()
        self.release()
        end = self.end or (self._handle.last_offered() if self.is_closed else None)
        try:
            # by its uuid, which is ours whoever owns the topic by now
            self._segments.records.update(
                self._segments.name, partial(abandon_segment, uuid=self.uuid, end=end)
            )
        except (AttemptError, UnknownTopicError):
            pass  # another has taken its place
        except OffloadError as error:
            _log.warning("attempt %s of %s is not given up yet: %s", self.uuid, self._segments.name, error)

    def release(self) -> None:
        """This process is not at it any more, as soon as nothing of it is under way."""
        self.outcome.add_done_callback(lambda _: self._held.close())

    def _note_lease(self) -> None:
        self._lease_step_ms = int(self._segments.lease_s * 1000 / 3)
        self.lease_due_ms = self._segments.now_ms() + self._lease_step_ms
