"""Offload sealed ledgers of a running cluster's topics, beside its brokers, so that nothing is lost whatever happens.

    mirror     the topic's record in our own store, with our attempts
    finish     copies that the live record has and no broker was seen to use; others that it cannot get any more go
    copy       each ledger from bookies to the tier, as an attempt in the mirror, through the topic's filter
    verify     every byte of it
    give       have the topic unloaded, and at once the verified copies in the live record, by one compare-and-set
    reload     see that the topic is loaded with them, and that its broker reads from the tier
    confirm    the copies are the live record's

A crash between any two lines leaves the topic readable, and the next call goes on: a copy stays ours in the mirror
until it is confirmed, so that each copy which the live record has was seen to be whole and to be read, or is looked at
again. Hot copies are left to the brokers, whose deletion lag begins only after a grace for that.

Copies of ours are deleted only if the live record does not have them. A process abandons such a copy in the mirror, and
then reads the live record; one that gives copies writes the live record, and then reads the mirror. So one of two
always sees the other. Source: docs/tiering.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.live.brokers import BrokersOffload
from offload_core.maintenance.live.live_cluster import LiveCluster
from offload_core.maintenance.verify.attempt_checks import check_objects
from offload_core.metadata.catalogue.copy_check import check_stored, is_deletable_for
from offload_core.metadata.catalogue.known_tiers import KnownTiers, broker_record, is_same_place, tier_record
from offload_core.metadata.catalogue.recorded_copies import recorded_copies
from offload_core.metadata.catalogue.topics import TopicName, topic_of_managed_ledger
from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import DriverMetadata, EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.records.live_changes import (
    GivenCopies,
    abandon_own,
    given_ledgers,
    is_own,
    mirrored,
    own_ledgers,
    why_no_copy,
    with_copies,
    without_copies,
)
from offload_core.metadata.records.offload_context import FILTER_PROPERTY
from offload_core.writing.audit import Change, ChangeAction
from offload_core.writing.managed_ledger import OffloadStatus, first_unoffloaded, no_tier
from offload_core.writing.managed_ledger.followed_transactions import open_filter
from offload_core.writing.managed_ledger.topic_offloads import is_due
from offload_core.writing.offload import OffloadProgress
from offload_core.writing.offload.attempt_objects import abort_uploads, delete_unless
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload.running_attempt import check_not_alive, ledger_attempt
from offload_hooks.errors import (
    AccessDeniedError,
    AttemptError,
    DataLossError,
    LiveAttemptError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    StoreError,
    StoreTimeoutError,
    UnknownLedgerError,
    UnknownTopicError,
    VersionConflictError,
)

GIVEN_AFTER_S = 600.0
"""A copy waits so long at most for others that go into the live record by the same write."""

_LOOKS_S = 0.1
_LONGEST_LOOK_S = 2.0
_PROBES = 5
"""Copies of which an entry is tried, to find one that brokers answer with."""

_log = logging.getLogger(__name__)


class LiveTopicOffloads:
    """The offloads of a topic of a running cluster, as `TopicOffloads` are of one of ours; one runs at a time.

    Other processes may offload the same topic.

    Args:
        name: its managed ledger's.

    Attributes:
        offload_status: see `ManagedLedger.offload_status`; ledgers in `waiting` are those that were left out, and why.
    """

    def __init__(self, cluster: LiveCluster, name: str) -> None:
        self.name = name
        self.offload_status = OffloadStatus()
        self._cluster = cluster
        self._mirror = cluster.mirror
        self._topic = topic_of_managed_ledger(name)
        self._lock = threading.Lock()
        self._is_stopped = False

    def read_info(self) -> ManagedLedgerInfo:
        """The live record as it is now; `UnknownTopicError` if there is none."""
        return self._cluster.records.require(self.name).info

    @property
    def is_unfinished(self) -> bool:
        """True if an attempt or a copy is left that is not confirmed: an offload finishes it, or deletes it."""
        known = self._mirror.records.read(self.name)
        return known is not None and bool(own_ledgers(known.info))

    def offload_prefix(self, position: EntryPosition) -> EntryPosition:
        """Offload the sealed ledgers before a position to the tier of the topic's policies.

        What processes that ended have left of the topic is finished, or deleted, first.

        Returns:
            The first position that is in no cold copy.

        Raises:
            UnknownTopicError: the cluster has no record of the topic.
            OptionError: its policies name no tier, one that brokers cannot read, or a filter that leaves gaps.
            LiveAttemptError: another process offloads a ledger of it at the moment.
            OffloadStoppedError: `stop_offload` was called.
            DataLossError: a copy is not what was to be written, or a broker does not read it; the live record does not
                have it, or no more. Others of the same call may have been offloaded.
            StoreError: a store, a bookie or a broker fails; it can be called again.
        """
        with self._running(position):
            policies = self._policies()
            self._check(policies)
            self._finish(policies)
            live = self.read_info()
            waiting: dict[int, str] = {}
            verified: dict[int, UUID] = {}
            damaged: DataLossError | None = None
            since = time.monotonic()
            try:
                for ledger in live.in_order:
                    if not is_due(ledger, position):
                        continue
                    if verified and time.monotonic() - since > GIVEN_AFTER_S:
                        waiting |= self._give(verified, policies)
                        verified, since = {}, time.monotonic()
                    try:
                        copied = self._copy(ledger)
                    except DataLossError as error:
                        damaged = damaged or error
                        continue
                    if isinstance(copied, str):
                        waiting[ledger.ledger_id] = copied
                    else:
                        verified[ledger.ledger_id] = copied
            except OffloadStoppedError:
                raise
            except OffloadError:
                with suppress(OffloadError):  # of two errors the first counts, and the next call gives them
                    self._give(verified, policies)
                raise
            waiting |= self._give(verified, policies)
            if damaged is not None:
                raise damaged
            return self._succeeded(waiting)

    def offload_by_broker(self, position: EntryPosition) -> EntryPosition:
        """Have the topic's broker offload the ledgers before a position, and verify every byte of what it wrote.

        Raises:
            DataLossError: a copy that the broker wrote is not sound.
            StoreError: the broker's offload failed. Others: as `offload_prefix`.
        """
        with self._running(position):
            if self._policies().driver is None:
                raise no_tier(self._topic)
            before = self.read_info()
            self._cluster.brokers.begin_offload(self._topic, _in_a_ledger(before, position))
            now = self._wait_for_broker()
            after = self.read_info()
            made = [
                ledger
                for ledger in after.in_order
                if ledger.has_complete_copy
                and (known := before.ledger(ledger.ledger_id)) is not None
                and not known.has_complete_copy
            ]
            with self._offloads().tiers_of(self.name) as tiers:
                for ledger in made:
                    _verify(tiers, self._topic, ledger)
            if now.state == "ERROR":
                reason = now.error or "no reason is given"
                raise StoreError(f"a broker's offload of {self._topic} failed", found=reason)
            self._offloaded(ledger.ledger_id for ledger in made)
            return self._succeeded(
                {each.ledger_id: "the broker left it out" for each in after.ledgers if is_due(each, position)}
            )

    def stop_offload(self) -> None:
        """Stop a running offload at its next ledger or block; one by a broker goes on there."""
        self._is_stopped = True

    def delete_hot_copies(self, lag_s: float) -> list[int]:
        """Delete nothing: brokers delete hot copies after their own lag."""
        del lag_s
        return []

    def forget(self) -> None:
        """Delete what is left of a topic that the cluster has no more: copies that it never had, and the mirror.

        Raises:
            LiveAttemptError: another process works on it still.
            OptionError, StoreError: a tier is not configured, or fails; it can be called again.
        """
        known = self._mirror.records.read(self.name)
        if known is None or self._cluster.records.read(self.name) is not None:
            return
        for ledger in own_ledgers(known.info):
            check_not_alive(ledger, self._mirror.now_ms())
            self._delete(ledger, "its topic was deleted; the copy was never used")
        self._mirror.snapshots.delete(self.name)
        known = self._mirror.records.read(self.name)
        if known is not None and not own_ledgers(known.info):
            with suppress(VersionConflictError):  # another process works on it
                self._mirror.records.delete(self.name, known)

    # --- status --------------------------------------------------------------------------------

    @contextmanager
    def _running(self, position: EntryPosition) -> Iterator[None]:
        with self._lock:
            self._is_stopped = False
            self.offload_status = OffloadStatus(state="running", target=position)
            try:
                yield
            except OffloadError as error:
                self.offload_status = replace(self.offload_status, state="error", progress=None, error=error)
                raise

    def _succeeded(self, waiting: Mapping[int, str]) -> EntryPosition:
        first = first_unoffloaded(self.read_info())
        self.offload_status = replace(
            self.offload_status,
            state="success",
            progress=None,
            first_unoffloaded=first,
            waiting=dict(sorted(waiting.items())),
        )
        return first

    def _offloaded(self, ledger_ids: Iterable[int]) -> None:
        known = self.offload_status.offloaded
        self.offload_status = replace(self.offload_status, offloaded=tuple(sorted({*known, *ledger_ids})))

    def _watch(self, progress: OffloadProgress) -> None:
        self.offload_status = replace(self.offload_status, progress=progress)
        self._check_not_stopped()

    def _check_not_stopped(self) -> None:
        if self._is_stopped:
            raise OffloadStoppedError(
                f"the offload of {self.name} was stopped", hint="It can be made again, and goes on."
            )

    def _wait_for_broker(self) -> BrokersOffload:
        looks = _Looks(self._cluster.reload_timeout_s)
        while (now := self._cluster.brokers.offload_state(self._topic)).state in ("RUNNING", "NOT_RUN"):
            self._check_not_stopped()
            if now.state == "NOT_RUN" and looks.are_over:
                raise StoreTimeoutError(f"the broker of {self._topic} does not begin to offload it")
            looks.pause()
        return now

    # --- the mirror ----------------------------------------------------------------------------

    def _mirror_of(self, live: ManagedLedgerInfo) -> ManagedLedgerInfo:
        """The mirror of a live record, as new as that."""
        records = self._mirror.records
        try:
            return records.update(self.name, partial(mirrored, live)).info
        except UnknownTopicError:
            with suppress(VersionConflictError):  # another process was faster
                records.write(self.name, mirrored(live, ManagedLedgerInfo()), None)
        return records.update(self.name, partial(mirrored, live)).info

    def _finish(self, policies: EffectivePolicies) -> None:
        """Finish what processes left: copies that the live record has, and others that it cannot get any more."""
        live = self.read_info()
        mirror = self._mirror_of(live)
        given = given_ledgers(live, mirror)
        sees = bool(given) and self._sees_reads(policies)
        probe = self._probe(given) if sees else None
        if sees and probe is None:
            _log.warning("the brokers of %s do not read what was offloaded: it is taken back", self._topic)
            kept = self._take_back(given, "brokers do not read it")
            self._confirm([each for each in given if each.ledger_id in kept])
        elif given:
            self._use(given, probe)
        for ledger in own_ledgers(mirror):
            why = why_no_copy(live, ledger.ledger_id)
            if why is None or _uuids([ledger]) & _uuids(given):
                continue
            try:
                check_not_alive(ledger, self._mirror.now_ms())
                self._delete(ledger, f"{why}; the copy was never used")
            except LiveAttemptError:
                pass  # its process finds out that it is not needed
            except OptionError as error:
                _log.warning("a copy of ledger %d of %s is left: %s", ledger.ledger_id, self.name, error)

    def _delete(self, ledger: LedgerRecord, why: str) -> None:
        """Delete a copy or an attempt of ours, unless the live record has it after all."""
        assert ledger.context is not None
        assert ledger.context.uuid is not None
        name, ledger_id, uuid = self.name, ledger.ledger_id, ledger.context.uuid
        left, records = ledger_attempt(name, ledger, why), self._mirror.records

        @contextmanager
        def needed() -> Iterator[Collection[ObjectKey]]:
            yield [left.key] if self._is_live(ledger_id, uuid) else []

        with self._offloads().tiers_of(name) as tiers:
            tier = tiers.find(left.driver)
            records.update(name, partial(abandon_own, ledger_id=ledger_id, uuid=uuid))
            if self._is_live(ledger_id, uuid):
                return
            self._mirror.audit.record(left.deletion)
            abort_uploads(tier, left.key)
            delete_unless(tier, [left.key], needed)
        if not self._is_live(ledger_id, uuid):
            with suppress(AttemptError):  # another process was faster
                records.update(name, left.forget)

    def _is_live(self, ledger_id: int, uuid: UUID) -> bool:
        """Return whether the live record has a copy."""
        found = self._cluster.records.read(self.name)
        ledger = None if found is None else found.info.ledger(ledger_id)
        return ledger is not None and uuid in ledger.copy_uuids

    # --- one ledger ----------------------------------------------------------------------------

    def _copy(self, ledger: LedgerRecord) -> UUID | str:
        """Copy a ledger, and verify the copy; its attempt, or why it is not copied now."""
        self._check_not_stopped()
        environment, name, ledger_id = self._mirror, self.name, ledger.ledger_id
        live = self.read_info()
        mirror = self._mirror_of(live)
        why = why_no_copy(live, ledger_id) or self._why_not_sealed(ledger)
        if why is not None:
            return why
        try:
            self._delete_unusable(mirror.ledger(ledger_id))
        except OptionError as error:
            return f"a copy was made before: {error}"
        last = EntryPosition(ledger_id, (ledger.info.entries or 0) - 1)
        run = open_filter(environment, name, last, mirror)
        if run is not None and not run.takes(last):
            return f"waits for {run.waits_for}"
        self._offloads().offload(
            name,
            ledger_id,
            filter_run=run,
            listener=self._watch,
            audit=environment.audit,
            replaces=False,  # what is left is deleted here, where the live record is asked before
        )
        self.offload_status = replace(self.offload_status, progress=None)
        made = environment.records.require(name).info.ledger(ledger_id)
        if made is None or not is_own(made) or not _is_complete(made):
            return "another process has taken its copy"
        try:
            with self._offloads().tiers_of(name) as tiers:
                _verify(tiers, self._topic, made)
        except DataLossError:
            self._delete(made, "the copy is not what was to be written")
            raise
        return made.copy_uuids[0]

    def _delete_unusable(self, ledger: LedgerRecord | None) -> None:
        """Delete an attempt of ours that is not complete, or a copy in a tier that policies name no more."""
        if ledger is None or not is_own(ledger) or ledger.context is None or ledger.context.driver is None:
            return
        if _is_complete(ledger):
            with self._offloads().tiers_of(self.name, to_write=True) as tiers:
                if is_same_place(tier_record(tiers.current), ledger.context.driver):
                    return
            self._delete(ledger, "it lies in another tier than policies name, and was never used")
            return
        check_not_alive(ledger, self._mirror.now_ms())
        self._delete(ledger, "its offload was left unfinished, and is begun anew")

    def _why_not_sealed(self, ledger: LedgerRecord) -> str | None:
        """Why a ledger is not what the record says, by BookKeeper; None if it is."""
        try:
            with closing(self._mirror.hot.store.open(ledger.ledger_id)) as reader:
                status = reader.status()
        except UnknownLedgerError:
            return "BookKeeper has it no more"
        if not status.sealed:
            return "BookKeeper has not closed it"
        found, recorded = (status.entry_count, status.size_bytes), (ledger.info.entries, ledger.info.size)
        if found != recorded:
            return f"BookKeeper has {found[0]} entries of {found[1]} bytes, the record {recorded[0]} of {recorded[1]}"
        return None

    # --- the live record -----------------------------------------------------------------------

    def _give(self, verified: Mapping[int, UUID], policies: EffectivePolicies) -> dict[int, str]:
        """Give verified copies to the live record, and have brokers use them; those that it did not get, and why."""
        if not verified:
            return {}
        if self._cluster.brokers.offload_state(self._topic).state == "RUNNING":
            return dict.fromkeys(
                verified, "its broker offloads the topic at the moment; the copy is given later"
            )
        name, environment = self.name, self._mirror
        own = _own(environment.records.require(name).info, verified)
        with self._offloads().tiers_of(name, to_write=True) as tiers:
            assert policies.driver is not None
            broker = broker_record(tiers.current, policies.driver)
        copies = [_as_brokers_do(ledger, broker) for ledger in own]
        probe = self._probe(copies) if self._sees_reads(policies) else None
        for copy in copies:
            self._record(copy, "a copy was made beside the brokers, and is verified", None, "offloaded")
        lag_begins_ms = environment.now_ms() + int(self._cluster.grace_s * 1000)
        given = GivenCopies(info=ManagedLedgerInfo())

        def give(live: ManagedLedgerInfo) -> ManagedLedgerInfo:
            nonlocal given
            given = with_copies(live, copies, lag_begins_ms)
            return given.info

        self._unload()
        self._cluster.records.update(name, give)
        used = [copy for copy in copies if copy.ledger_id in given.given]
        left = _uuids(_own(environment.records.require(name).info, verified))
        abandoned = [copy for copy in used if copy.copy_uuids[0] not in left]
        self._take_back(abandoned, "another process has taken it for left")
        used = [copy for copy in used if copy not in abandoned]
        self._use(used, probe)
        self._offloaded(copy.ledger_id for copy in used)
        gone = dict.fromkeys((copy.ledger_id for copy in abandoned), "another process has deleted its copy")
        return {**given.refused, **gone}

    def _use(self, copies: Sequence[LedgerRecord], probe: EntryPosition | None) -> None:
        """Have brokers use copies that the live record has; those that are not whole, or not read, are taken back.

        Args:
            probe: an entry that brokers answer with; None to ask for none.
        """
        self._reload()  # first: as long as the topic is loaded with an older record, its next write closes it
        damaged: dict[int, DataLossError] = {}
        with self._offloads().tiers_of(self.name) as tiers:
            for copy in copies:
                try:
                    _check_stored(tiers, self._topic, copy)
                except DataLossError as error:
                    damaged[copy.ledger_id] = error
        self._take_back([copy for copy in copies if copy.ledger_id in damaged], "it is not whole any more")
        whole = [copy for copy in copies if copy.ledger_id not in damaged]
        if probe is not None and any(copy.ledger_id == probe.ledger_id for copy in whole):
            self._check_read(whole, probe)
        self._confirm(whole)
        for each in damaged.values():
            raise each

    def _confirm(self, copies: Sequence[LedgerRecord]) -> None:
        """Leave copies to the live record: no process looks at them again."""
        self._mirror.records.update(self.name, partial(mirrored, self.read_info(), confirmed=_uuids(copies)))

    def _sees_reads(self, policies: EffectivePolicies) -> bool:
        """True if it shows when brokers do not read the tier: by a priority of BookKeeper it does not."""
        if policies.read_priority.hot_first:
            _log.warning(
                "whether brokers read the tier of %s is not seen: they read BookKeeper first", self._topic
            )
        return not policies.read_priority.hot_first

    def _probe(self, copies: Sequence[LedgerRecord]) -> EntryPosition | None:
        """Find an entry of one of these ledgers, the newest first, that brokers answer with; None if there is none.

        They do not answer with each: not with an encrypted one that is compressed, or one of very many properties.
        """
        for copy in copies[: -_PROBES - 1 : -1]:
            position = EntryPosition(copy.ledger_id, 0)
            with suppress(StoreError):
                if self._cluster.brokers.read_entry(self._topic, position) is not None:
                    return position
        _log.warning("the brokers of %s show no entry of what is offloaded", self._topic)
        return None

    def _check_read(self, copies: Sequence[LedgerRecord], probe: EntryPosition) -> None:
        """Have the topic's broker read an entry of the tier; if it cannot, the live record has the copies no more."""
        looks = _Looks(self._cluster.reload_timeout_s)
        while True:
            cause: StoreError | None = None
            try:
                if self._cluster.brokers.read_entry(self._topic, probe) is not None:
                    return
            except StoreError as error:
                cause = error
            if self.read_info().ledger(probe.ledger_id) is None:
                return  # its retention is over
            if looks.are_over:
                break
            looks.pause()
        kept = self._take_back(copies, "brokers do not read it")
        raise DataLossError(
            f"the broker of {self._topic} does not read what was offloaded",
            ledger_id=probe.ledger_id,
            entry_id=probe.entry_id,
            found="no such entry" if cause is None else str(cause),
            hint="Its namespace's policies must name the tier and have credentials for it. "
            + ("It reads BookKeeper's copies again." if not kept else f"Only the tier has: ledgers {kept}."),
        ) from cause

    def _take_back(self, copies: Sequence[LedgerRecord], why: str) -> list[int]:
        """Have the live record name these copies no more; the ledgers whose hot copies are gone, which keep theirs."""
        if not copies:
            return []
        for copy in copies:
            self._record(copy, why, "offloaded", "not offloaded")
        self._unload()
        live = self._cluster.records.update(self.name, partial(without_copies, uuids=_uuids(copies))).info
        self._reload()
        return [
            copy.ledger_id
            for copy in copies
            if (known := live.ledger(copy.ledger_id)) is not None
            and set(known.copy_uuids).intersection(copy.copy_uuids)
        ]

    def _record(self, copy: LedgerRecord, why: str, before: str | None, after: str) -> None:
        self._mirror.audit.record(
            Change(
                action=ChangeAction.RECORD,
                why=why,
                managed_ledger=self.name,
                ledger_id=copy.ledger_id,
                uuid=copy.copy_uuids[0],
                before=before,
                after=after,
            )
        )

    def _unload(self) -> None:
        """Have no broker have the topic loaded when the live record is written next, if that can be.

        A broker that has it loaded finds at its next write that another has written, and closes it with entries on
        their way; its clients may then wait for long. One that is about to load it has none, and begins anew.
        """
        try:
            self._cluster.brokers.unload(self._topic)
        except AccessDeniedError:
            raise
        except StoreError as error:  # the topic is being closed, or loaded: it is reloaded afterwards
            _log.debug("%s is not unloaded before its record is written: %s", self.name, error)

    def _reload(self) -> None:
        """Have the topic loaded anew, and wait until its broker knows the copies that the live record has.

        Raises:
            StoreTimeoutError: it does not, in time. The next call goes on here.
        """
        looks, is_unloaded = _Looks(self._cluster.reload_timeout_s), False
        while True:
            stale: tuple[int, ...] = ()
            cause: StoreError | None = None
            try:
                stale = self._stale()
                if not stale:
                    return
                if not is_unloaded:
                    self._cluster.brokers.unload(self._topic)
                    is_unloaded = True
                    continue
            except AccessDeniedError:
                raise
            except StoreError as error:  # the topic is being closed, or loaded
                cause = error
            if looks.are_over:
                raise StoreTimeoutError(
                    f"the broker of {self._topic} does not use the cold copies that its record has",
                    found=", ".join(f"ledger {each}" for each in stale) or str(cause),
                    hint="Unload the topic: pulsar-admin topics unload; or call this again.",
                ) from cause
            looks.pause()

    def _stale(self) -> tuple[int, ...]:
        """Ledgers whose cold copies, which the live record has, their broker does not know of, or the other way."""
        known = self._cluster.brokers.offloaded(self._topic)
        return tuple(
            ledger.ledger_id
            for ledger in self.read_info().in_order
            if ledger.ledger_id in known and known[ledger.ledger_id] != ledger.has_complete_copy
        )

    # --- policies ------------------------------------------------------------------------------

    def _check(self, policies: EffectivePolicies) -> None:
        """Refuse policies by which brokers could not read what is offloaded."""
        if policies.driver is None:
            raise no_tier(self._topic)
        chosen = self._mirror.filter_of(self.name)
        if chosen.name != "disabled" and chosen.mode is not FilterMode.TOMBSTONE:
            raise OptionError(
                "brokers do not read objects that leave gaps",
                expected="the filter mode tombstone",
                found=chosen.mode.value,
            )
        with self._offloads().tiers_of(self.name, to_write=True) as tiers:
            broker_record(tiers.current, policies.driver)
        if chosen.name != "disabled" and self._mirror.snapshots.read(self.name) is None:
            self._mirror.snapshots.reset(self.name)  # the topic is read from its first entry on

    def _policies(self) -> EffectivePolicies:
        return self._cluster.policies.resolve(self._topic).offload

    def _offloads(self) -> RecordedOffloads:
        assert self._mirror.offloads is not None
        return self._mirror.offloads


class _Looks:
    """Looks again and again, for so long, each time after a longer pause."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = _LOOKS_S

    @property
    def are_over(self) -> bool:
        return time.monotonic() > self._deadline

    def pause(self) -> None:
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_LOOK_S)


def _in_a_ledger(info: ManagedLedgerInfo, position: EntryPosition) -> EntryPosition:
    """The first position from this one on in a ledger that there is: brokers refuse one between two ledgers."""
    if info.ledger(position.ledger_id) is not None:
        return position
    later = [ledger.ledger_id for ledger in info.in_order if ledger.ledger_id > position.ledger_id]
    return EntryPosition(later[0], 0) if later else position


def _verify(tiers: KnownTiers, topic: TopicName, ledger: LedgerRecord) -> None:
    """Verify every byte of a ledger's copies, and that they are what its record says (`DataLossError`)."""
    for copy in recorded_copies(topic, ledger):
        check_objects(tiers.find(copy.driver), copy.key)
    _check_stored(tiers, topic, ledger)


def _check_stored(tiers: KnownTiers, topic: TopicName, ledger: LedgerRecord) -> None:
    for copy in recorded_copies(topic, ledger):
        mismatch = check_stored(tiers.find(copy.driver), ledger, copy)
        if mismatch is not None and not is_deletable_for(mismatch):
            raise DataLossError(
                f"a copy does not match its record: {mismatch.what}",
                key=mismatch.key(copy),
                ledger_id=ledger.ledger_id,
                entry_id=mismatch.entry_id,
                expected=mismatch.expected,
                found=mismatch.found,
            )


def _own(mirror: ManagedLedgerInfo, verified: Mapping[int, UUID]) -> list[LedgerRecord]:
    """The ledgers of a mirror whose own complete copies are these."""
    return [
        ledger
        for ledger in own_ledgers(mirror)
        if _is_complete(ledger) and verified.get(ledger.ledger_id) in ledger.copy_uuids
    ]


def _uuids(ledgers: Iterable[LedgerRecord]) -> frozenset[UUID]:
    return frozenset(uuid for ledger in ledgers for uuid in ledger.copy_uuids)


def _is_complete(ledger: LedgerRecord) -> bool:
    return ledger.context is not None and ledger.context.complete


def _as_brokers_do(ledger: LedgerRecord, broker: DriverMetadata) -> LedgerRecord:
    """A ledger of a mirror with its copy as a broker records one, and what a filter did to it."""
    context = ledger.context
    assert context is not None
    filtered = None if context.driver is None else context.driver.get(FILTER_PROPERTY)
    driver = broker if filtered is None else broker.with_property(FILTER_PROPERTY, filtered)
    return replace(ledger, context=replace(context, driver=driver))
