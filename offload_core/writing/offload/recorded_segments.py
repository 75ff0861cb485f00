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
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import TOPIC_KEY, ObjectFormat
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import DriverMetadata, EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.segments import (
    Segment,
    abandon_segment,
    assign_segment,
    complete_segment,
    extend_segment,
    find_segment,
    renew_segment,
    resume_segment,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import Change
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.audit import AuditLog
from offload_core.writing.offload.ledger_offloader import DEFAULT_MAX_BLOCK_BYTES
from offload_core.writing.offload.running_attempt import (
    UnfinishedAttempt,
    lease_from,
    ledger_attempt,
    segment_attempt,
    working_on,
)
from offload_core.writing.offload.segment_offloader import (
    Offered,
    OfferResult,
    OffloadHandle,
    SegmentFilter,
    SegmentOffloader,
)
from offload_core.writing.offload.segment_upload import OffloadedSegment, SegmentOutcome
from offload_core.writing.offload.streaming_blocks import LEAST_BLOCK_BYTES, LEAST_EARLY_BYTES
from offload_hooks.errors import AttemptError, OffloadError, OptionError, UnknownTopicError
from offload_hooks.ledger_stores import EntryBatch

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)

TiersOf = Callable[[], AbstractContextManager[KnownTiers]]
"""The tiers of a topic, open until the context is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingSettings:
    """Bounds of one segment; it closes with the first of them that is reached.

    Attributes:
        max_segment_bytes: of payloads; `maxSizePerOffloadSegmentMbytes`. The entry that reaches it is the last.
        max_segment_age_s: since its first entry waits, also on an idle topic; `maxOffloadSegmentRolloverTimeMinutes`.
        block_bytes: the length of a full block.
        checksums: write those of all blocks and the index beside them.
    """

    max_segment_bytes: int = 1024 << 20
    max_segment_age_s: float = 600
    block_bytes: int = DEFAULT_MAX_BLOCK_BYTES
    checksums: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("max_segment_bytes", 1),
            ("max_segment_age_s", 0),
            ("block_bytes", LEAST_BLOCK_BYTES),
        ):
            value = getattr(self, name)
            if not value >= least:
                raise OptionError(
                    f"streaming has an impossible {name}", expected=f"{least} or more", found=value
                )

    @classmethod
    def within(cls, budget_bytes: int) -> Self:
        """The defaults, with blocks for which the memory of a pool is enough."""
        return cls(block_bytes=max(LEAST_BLOCK_BYTES, min(DEFAULT_MAX_BLOCK_BYTES, budget_bytes // 2)))

    @property
    def feed_bytes(self) -> int:
        """The bytes that wait before they are offloaded, where nothing else asks for it: enough for a block to go."""
        return min(LEAST_EARLY_BYTES, self.block_bytes, self.max_segment_bytes)

    @property
    def max_age_ms(self) -> int:
        """The age in ms."""
        return int(self.max_segment_age_s * 1000)


class RecordedSegments:
    """Segments of one managed ledger.

    Args:
        records: the managed ledgers' records.
        update: changes this one's, as its owner.
        tiers: where segments go, and where others of them are.
        executor, budget: see `SegmentOffloader`.
        audit: records the deletion of attempts.
        now_ms: the time, in ms since 1970, UTC.
        lease_s: how long other processes leave an attempt alone after its last renewal.
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
        audit: AuditLog,
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
        self._audit = audit

    def assign(
        self,
        begin: EntryPosition,
        settings: StreamingSettings,
        end: EntryPosition | None = None,
        segment_filter: SegmentFilter | None = None,
    ) -> RecordedSegment:
        """Record a segment and open it; its entries go through `segment_filter`.

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

        return self._open(settings, segment_filter, record)

    def resume(
        self, old: Segment, settings: StreamingSettings, segment_filter: SegmentFilter | None = None
    ) -> RecordedSegment:
        """Clean up after an attempt that did not come to its end, and make another at the same positions.

        Its entries go through the filter anew, as it is now.

        Raises:
            LiveAttemptError: its lease is held; nothing was changed.
            OptionError: its objects lie in a tier that is not configured; or as `assign`.
            OwnershipLostError, AttemptError, StoreError: of the record, the tier and the audit log.
        """
        why = "its segment was left unfinished, and is offloaded anew"
        self._clean_up(segment_attempt(self.name, old, why), forgets=False)

        def record(uuid: UUID, driver: DriverMetadata) -> ManagedLedgerInfo:
            now = self.now_ms()
            lease = lease_from(now, self.lease_s)
            return self.update(lambda info: resume_segment(info, old.uuid, uuid, driver, now, lease=lease))

        return self._open(settings, segment_filter, record)

    def forget(self, old: Segment) -> None:
        """Clean up after an attempt at entries that are not there any more. Errors as `resume`."""
        why = "the entries of its segment are not there any more"
        self._clean_up(segment_attempt(self.name, old, why), forgets=True)

    def clear(self, ledger: LedgerRecord) -> None:
        """Clean up after an attempt at a whole ledger that did not come to its end. Errors as `resume`."""
        why = "its offload was left unfinished, and segments follow"
        self._clean_up(ledger_attempt(self.name, ledger, why), forgets=True)

    def _clean_up(self, attempt: UnfinishedAttempt, *, forgets: bool) -> None:
        with self._tiers() as tiers:
            attempt.clean_up(self.update, tiers, self._audit, self.now_ms, forgets=forgets)

    def delete_lost(self, segment: RecordedSegment) -> None:
        """Delete what an attempt of this process has in the tier, if another took its place in the record."""
        if not segment.has_ended:
            return
        try:
            known = self.records.read(self.name)
            if known is None or find_segment(known.info, segment.uuid) is None:
                attempt = segment_attempt(self.name, segment.recorded, "another attempt took its place")
                with self._tiers() as tiers:
                    attempt.delete(tiers.find(attempt.driver), self._audit)
        except OffloadError as error:
            _log.warning("attempt %s of %s is not deleted yet: %s", segment.uuid, self.name, error)

    def _open(
        self,
        settings: StreamingSettings,
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
                max_block_bytes=settings.block_bytes,
                checksums=settings.checksums,
            )
            driver = tier_record(tier, ObjectFormat.STREAMING)
            segment = find_segment(record(uuid, driver), uuid)
            assert segment is not None
            handle = offloader.open_segment(
                uuid,
                segment.begin,
                {TOPIC_KEY: self.name},
                max_segment_bytes=settings.max_segment_bytes if segment.end is None else None,
                segment_filter=segment_filter,
            )
            return RecordedSegment(self, segment, handle, segment_filter, held.pop_all())


class RecordedSegment:
    """A segment that this process is at; used by one thread at a time.

    Attributes:
        recorded: it, as it was recorded.
        next: the entry that is offered next.
        filter: the filter of its entries; None for none.
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
        self.recorded = segment
        self.begin = self.next = segment.begin
        self.end = segment.end
        self.filter = segment_filter
        self.is_closed = False
        self._note_lease()

    @property
    def outcome(self) -> SegmentOutcome:
        """The outcome; see `OffloadHandle.result`."""
        return self._handle.result()

    @property
    def has_ended(self) -> bool:
        """True if it has its outcome."""
        return self.outcome.done()

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
        """The failure of a segment that has ended; None if it is in the tier."""
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
            # by its uuid, which is ours even if the topic has another owner by now
            self._segments.records.update(
                self._segments.name, partial(abandon_segment, uuid=self.uuid, end=end)
            )
        except (AttemptError, UnknownTopicError):
            pass  # another has taken its place
        except OffloadError as error:
            _log.warning("attempt %s of %s is not given up yet: %s", self.uuid, self._segments.name, error)

    def release(self) -> None:
        """End this process's work on it, as soon as none of it is under way."""
        self.outcome.add_done_callback(lambda _: self._held.close())

    def _note_lease(self) -> None:
        self._lease_step_ms = int(self._segments.lease_s * 1000 / 3)
        self.lease_due_ms = self._segments.now_ms() + self._lease_step_ms
