"""Offload sealed ledgers of a running cluster's topics, beside its brokers, so that nothing is lost whatever happens.

    mirror   the topic's record in our own store, with our attempts
    finish   what processes left: see `live_copies`
    copy     each ledger from bookies to the tier, as an attempt in the mirror, through the topic's filter
    verify   every byte of it
    give     see `live_copies`

A crash between any two lines leaves the topic readable, and the next call goes on. Hot copies are left to the brokers,
whose deletion lag begins only after a grace. Source: docs/tiering.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from uuid import UUID

from offload_core.maintenance.live.brokers import BrokersOffload
from offload_core.maintenance.live.live_cluster import LiveCluster
from offload_core.maintenance.live.live_copies import LiveCopies, Looks, check_copies, is_complete
from offload_core.maintenance.verify.attempt_checks import check_objects
from offload_core.metadata.catalogue.known_tiers import KnownTiers, broker_record, is_same_place, tier_record
from offload_core.metadata.catalogue.recorded_copies import recorded_copies
from offload_core.metadata.catalogue.topics import TopicName
from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo, other_copies
from offload_core.metadata.records.live_changes import is_own, own_ledgers, why_no_copy
from offload_core.writing.managed_ledger import OffloadStatus, first_unoffloaded
from offload_core.writing.managed_ledger.followed_transactions import open_filter
from offload_core.writing.managed_ledger.topic_offloads import is_due
from offload_core.writing.offload import OffloadProgress
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload.running_attempt import check_not_alive
from offload_hooks.errors import (
    DataLossError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    StoreError,
    StoreTimeoutError,
    UnknownLedgerError,
    VersionConflictError,
)

GIVEN_AFTER_S = 600.0
"""A copy waits so long at most for others that go into the live record by the same write."""


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
        self._copies = LiveCopies(cluster, name)
        self._topic = self._copies.topic
        self._lock = threading.Lock()
        self._is_stopped = False

    def read_info(self) -> ManagedLedgerInfo:
        """The live record as it is now; `UnknownTopicError` if there is none."""
        return self._copies.read_info()

    @property
    def is_unfinished(self) -> bool:
        """True if an attempt or a copy is left that is not confirmed: an offload finishes it, or deletes it."""
        return self._copies.is_unfinished()

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
            policies = self._copies.policies()
            self._check(policies)
            self._copies.finish(policies)
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
            self._copies.policies()
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
            with self._copies.tiers() as tiers:
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
        why = "its topic was deleted; the copy was never used"
        for ledger in own_ledgers(known.info):
            check_not_alive(ledger, self._mirror.now_ms())
            self._copies.delete(ledger, why)
        self._copies.delete_replacements(why)
        self._mirror.snapshots.delete(self.name)
        known = self._mirror.records.read(self.name)
        if known is not None and not own_ledgers(known.info) and not other_copies(known.info):
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
        looks = Looks(self._cluster.reload_timeout_s)
        while (now := self._cluster.brokers.offload_state(self._topic)).state in ("RUNNING", "NOT_RUN"):
            self._check_not_stopped()
            if now.state == "NOT_RUN" and looks.are_over:
                raise StoreTimeoutError(f"the broker of {self._topic} does not begin to offload it")
            looks.pause()
        return now

    # --- ledgers -------------------------------------------------------------------------------

    def _give(self, verified: Mapping[int, UUID], policies: EffectivePolicies) -> Mapping[int, str]:
        """Give verified copies to the live record; those that it did not get, and why."""
        own = [
            ledger
            for ledger in own_ledgers(self._copies.read_mirror())
            if is_complete(ledger) and verified.get(ledger.ledger_id) in ledger.copy_uuids
        ]
        given = self._copies.give(own, policies)
        self._offloaded(given.used)
        if given.damaged is not None:
            raise given.damaged
        return given.refused

    def _copy(self, ledger: LedgerRecord) -> UUID | str:
        """Copy a ledger, and verify the copy; its attempt, or why it is not copied now."""
        self._check_not_stopped()
        environment, name, ledger_id = self._mirror, self.name, ledger.ledger_id
        live = self.read_info()
        mirror = self._copies.read_mirror()
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
        if made is None or not is_own(made) or not is_complete(made):
            return "another process has taken its copy"
        try:
            with self._copies.tiers() as tiers:
                _verify(tiers, self._topic, made)
        except DataLossError:
            self._copies.delete(made, "the copy is not what was to be written")
            raise
        return made.copy_uuids[0]

    def _delete_unusable(self, ledger: LedgerRecord | None) -> None:
        """Delete an attempt of ours that is not complete, or a copy in a tier that policies name no more."""
        if ledger is None or not is_own(ledger) or ledger.context is None or ledger.context.driver is None:
            return
        if is_complete(ledger):
            with self._offloads().tiers_of(self.name, to_write=True) as tiers:
                if is_same_place(tier_record(tiers.current), ledger.context.driver):
                    return
            self._copies.delete(ledger, "it lies in another tier than policies name, and was never used")
            return
        check_not_alive(ledger, self._mirror.now_ms())
        self._copies.delete(ledger, "its offload was left unfinished, and is begun anew")

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

    # --- policies ------------------------------------------------------------------------------

    def _check(self, policies: EffectivePolicies) -> None:
        """Refuse policies by which brokers could not read what is offloaded."""
        assert policies.driver is not None
        chosen = self._copies.readable_filter()
        with self._offloads().tiers_of(self.name, to_write=True) as tiers:
            broker_record(tier_record(tiers.current), policies.driver)
        if chosen.name != "disabled" and self._mirror.snapshots.read(self.name) is None:
            self._mirror.snapshots.reset(self.name)  # the topic is read from its first entry on

    def _offloads(self) -> RecordedOffloads:
        assert self._mirror.offloads is not None
        return self._mirror.offloads


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
    check_copies(tiers, topic, ledger)
