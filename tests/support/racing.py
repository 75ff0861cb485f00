"""Writers of a tier that can be stopped between any two lines, as generators; and a tier whose clock is another's.

Each writer goes from one record to the next as ours does, or as a broker does, which has no lease, and completes what
its record names without a look at anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from entries import LedgerPart, WrittenObject, pip17_object, streaming_object

from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import (
    DriverMetadata,
    EntryPosition,
    ManagedLedgerInfo,
    ManagedLedgerRecords,
    abandon_attempt,
    abandon_segment,
    assign_segment,
    complete_attempt,
    complete_segment,
    prepare_attempt,
    resume_segment,
    unfinished_segment,
)
from offload_core.metadata.attempts import AttemptHolder, AttemptLease
from offload_core.metadata.copy_replacement import begin_replacement, forget_replaced, switch_replacement
from offload_core.metadata.replacement_record import CopyForm
from offload_core.metadata.segment_deletion import condemn_ledgers
from offload_core.offload.attempt_objects import delete_attempt
from offload_core.offload.running_attempt import check_not_alive, check_over
from offload_core.tier import Tier
from offload_hooks import hookimpl
from offload_hooks.errors import AttemptError, UnknownTopicError, UploadError
from offload_hooks.testing import MemoryDriver, MemoryTier
from offload_hooks.values import ObjectStat, Upload

PAYLOADS = [b"first", b"second", b"third"]
DRIVER = DriverMetadata(name="memory", properties=(("location", "memory:"),))
LEASE_MS = 60_000
_SOMEBODY = AttemptHolder(machine=1, process=1, started=1)

Steps = Iterator[None]


@dataclass
class StoreClock:
    """The time by our clock, and how far the store's is ahead."""

    now_ms: int = 1_700_000_000_000
    skew_s: int = 0

    def __call__(self) -> int:
        return self.now_ms

    @property
    def in_store(self) -> datetime:
        """The store's time."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC) + timedelta(seconds=self.skew_s)


class ClockedDriver(MemoryDriver):
    """A tier in memory by the store's clock; what is deleted or aborted is told before."""

    def __init__(self, tier: MemoryTier, clock: StoreClock, told: Callable[[str], None]) -> None:
        super().__init__(tier)
        self._clock, self._told = clock, told

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        upload = super().begin_data(key, content_type, user_metadata)
        self.tier.uploads[upload].started_at = self._clock.in_store
        return upload

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        for key in keys:
            self._told(key)
        return super().delete(keys)

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        if upload in self.tier.uploads:  # else it was committed meanwhile, and nothing is aborted
            self._told(upload.key)
        return super().abort_data(upload)

    def store(self, key: str, *given: object) -> ObjectStat:  # type: ignore[override]
        """Put an object in place."""
        super().store(key, *given)  # type: ignore[arg-type]
        stored = self.tier.objects[key]
        self.tier.objects[key] = replace(stored, stat=replace(stored.stat, modified_at=self._clock.in_store))
        return self.tier.objects[key].stat


@dataclass
class Writer:
    """Whoever writes to one topic; each verb yields between any two of its calls.

    Attributes:
        leased: it has a lease, as ours has; else it is a broker, whose records nobody else changes.
        uuid: of the attempt that it is at.
    """

    records: ManagedLedgerRecords
    tier: Tier
    clock: StoreClock
    name: str
    cluster: str | None
    leased: bool
    uuid: UUID | None = None

    def lease(self) -> AttemptLease | None:
        """A lease from now on, of a process on another machine."""
        return AttemptLease(holder=_SOMEBODY, until_ms=self.clock() + LEASE_MS) if self.leased else None

    # --- verbs ---------------------------------------------------------------------------------

    def offload(self, ledger_id: int) -> Steps:
        """A ledger in one object."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            info = self._info()
            ledger = info.ledger(ledger_id)
            context = None if ledger is None else ledger.context
            older = None if context is None or context.complete else context.uuid
            if older is not None and not (context and context.segments):
                if self.leased:
                    self._update(lambda now: _taken_over(now, ledger_id, older, self.clock()))
                yield
                delete_attempt(self.tier, _key(older, ledger_id))
                yield
            uuid = self._begin()
            self._update(
                lambda now: prepare_attempt(now, ledger_id, uuid, DRIVER, replaces=older, lease=self.lease())
            )
            yield
            yield from self._write(pip17_object(PAYLOADS, ledger_id=ledger_id), uuid)
            self._end(lambda now: complete_attempt(now, ledger_id, uuid, self.clock()))

    def stream(self, ledger_id: int) -> Steps:
        """A segment of a whole ledger."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            old = unfinished_segment(self._info())
            last = len(PAYLOADS) - 1
            if old is not None:
                self._update(lambda now: _segment_taken_over(now, old.uuid, old.driver, self.clock()))
                yield
                delete_attempt(self.tier, _key(old.uuid, None))
                yield
            uuid = self._begin()
            if old is None:
                begin, end = EntryPosition(ledger_id, 0), EntryPosition(ledger_id, last)
                self._update(
                    lambda now: assign_segment(now, uuid, begin, DRIVER, 0, end=end, lease=self.lease())
                )
            else:
                begin = old.begin
                self._update(lambda now: resume_segment(now, old.uuid, uuid, DRIVER, 0, lease=self.lease()))
            yield
            part = LedgerPart(ledger_id=begin.ledger_id, blocks=[PAYLOADS])
            yield from self._write(streaming_object([part]), uuid)
            end = EntryPosition(begin.ledger_id, last)
            self._end(lambda now: complete_segment(now, uuid, end, {end.ledger_id: last}, self.clock()))

    def replace(self, ledger_id: int) -> Steps:
        """Another copy of a ledger takes the place of the one that is there, which is deleted then."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            ledger = self._info().ledger(ledger_id)
            if ledger is None or ledger.context is None or ledger.context.segments:
                return
            old = ledger.context.uuid
            uuid = self._begin()
            self._update(
                lambda now: begin_replacement(
                    now, [ledger_id], uuid, CopyForm.LEDGER, DRIVER, self.clock(), lease=self.lease()
                )
            )
            yield
            yield from self._write(pip17_object(PAYLOADS, ledger_id=ledger_id), uuid)
            self._end(lambda now: switch_replacement(now, uuid, self.clock()))
            yield
            assert old is not None
            delete_attempt(self.tier, _key(old, ledger_id))
            yield
            self._update(lambda now: forget_replaced(now, old))

    def trim(self, ledger_id: int) -> Steps:
        """A ledger is deleted with its copy: by us condemned first, by a broker forgotten first."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            ledger = self._info().ledger(ledger_id)
            if ledger is None:
                return
            if self.leased:
                self._update(lambda now: condemn_ledgers(now, [ledger_id]))
                yield
            else:
                self._update(lambda now: _without(now, ledger_id))
            context = ledger.context
            if context is not None and context.uuid is not None:
                key = _key(context.uuid, None if context.segments else ledger_id)
                delete_attempt(self.tier, key)
                yield
            self._update(lambda now: _without(now, ledger_id))

    def delete_topic(self) -> Steps:
        """The topic's record goes; what lies in the tier stays behind."""
        known = self.records.read(self.name)
        if known is not None:
            self.records.delete(self.name, known)
        return iter(())

    # --- parts ---------------------------------------------------------------------------------

    def _info(self) -> ManagedLedgerInfo:
        known = self.records.read(self.name)
        if known is None:
            raise UnknownTopicError("the topic is deleted", key=self.name)
        return known.info

    def _update(self, change: Callable[[ManagedLedgerInfo], ManagedLedgerInfo]) -> None:
        self.records.update(self.name, change)

    def _begin(self) -> UUID:
        self.uuid = uuid4()
        return self.uuid

    def _end(self, change: Callable[[ManagedLedgerInfo], ManagedLedgerInfo]) -> None:
        """Record that the attempt is complete; a broker takes no notice of what others say of it."""
        uuid = self.uuid
        assert uuid is not None
        self._update(change)
        self.uuid = None

    def _write(self, written: WrittenObject, uuid: UUID) -> Steps:
        key = replace(written.key, uuid=uuid)
        metadata = {"s3managedledgeroffloaderformatversion": "1", "managedledgername": self.name}
        if self.cluster is not None:
            metadata["pulsarclustername"] = self.cluster
        upload = self.tier.begin_data(key.data_key, user_metadata=metadata | {"role": "data"})
        yield
        receipt = self.tier.write_block(upload, 1, 0, written.data)
        yield
        self.tier.commit_data(upload, [receipt])
        yield
        self.tier.write_index(key.index_key, written.index, user_metadata=metadata | {"role": "index"})
        yield


def _key(uuid: UUID, ledger_id: int | None) -> ObjectKey:
    return ObjectKey(folder="", uuid=uuid, ledger_id=ledger_id, is_index=False)


def _taken_over(info: ManagedLedgerInfo, ledger_id: int, uuid: UUID, now_ms: int) -> ManagedLedgerInfo:
    check_not_alive(info.ledger(ledger_id), now_ms)
    return abandon_attempt(info, ledger_id, uuid)


def _segment_taken_over(
    info: ManagedLedgerInfo, uuid: UUID, driver: DriverMetadata | None, now_ms: int
) -> ManagedLedgerInfo:
    check_over(uuid, driver, now_ms, 0)
    return abandon_segment(info, uuid)


def _without(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    left = tuple(ledger for ledger in info.ledgers if ledger.ledger_id != ledger_id)
    return replace(info, ledgers=left)
