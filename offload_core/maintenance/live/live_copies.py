"""Our copies of a topic's ledgers in its record of a running cluster: given, seen to be used, taken back, deleted.

    give       have the topic unloaded, and at once verified copies in the live record, by one compare-and-set
    reload     see that the topic is loaded with them, and that its broker reads from the tier
    confirm    the copies are the live record's
    take back  copies that are not whole, or not read: what they replaced is read again, or BookKeeper's copy
    finish     the same of copies that a process gave which ended; and others that can be given no more go

A copy stays ours in the mirror until it is confirmed, so that each copy which the live record has was seen to be whole
and to be read, or is looked at again.

Copies of ours are deleted only if the live record does not have them. A process abandons such a copy in the mirror, and
then reads the live record; one that gives copies writes the live record, and then reads the mirror. So one of two
always sees the other. In the same way a copy that was replaced is put back: the live record first, and then it is seen
whether its objects are there. Source: docs/tiering.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.live.live_cluster import LiveCluster
from offload_core.metadata.catalogue.copy_check import check_stored, is_deletable_for
from offload_core.metadata.catalogue.known_tiers import KnownTiers, broker_record, place_text
from offload_core.metadata.catalogue.recorded_copies import recorded_copies
from offload_core.metadata.catalogue.topics import TopicName, topic_of_managed_ledger
from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherRole,
    other_copies,
    replaced_of,
)
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.records.live_changes import (
    GivenCopies,
    abandon_own,
    given_ledgers,
    is_own,
    mirrored,
    own_ledgers,
    settled,
    why_no_copy,
    with_copies,
    without_copies,
)
from offload_core.metadata.records.offload_context import FILTER_PROPERTY
from offload_core.metadata.records.replacements import with_replaced
from offload_core.writing.audit import Change, ChangeAction
from offload_core.writing.managed_ledger import no_tier
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry, delete_copy
from offload_core.writing.offload.attempt_objects import abort_uploads, delete_unless
from offload_core.writing.offload.running_attempt import check_not_alive, ledger_attempt
from offload_core.writing.offload_filters import ChosenFilter
from offload_hooks.errors import (
    AccessDeniedError,
    AttemptError,
    DataLossError,
    LiveAttemptError,
    OptionError,
    StoreError,
    StoreTimeoutError,
)

_LOOKS_S = 0.1
_LONGEST_LOOK_S = 2.0
_PROBES = 5
"""Copies of which an entry is tried, to find one that brokers answer with."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What became of verified copies.

    Attributes:
        used: ledgers whose copies brokers use.
        is_seen: whether a broker was seen to read one of them.
        refused: ledgers whose copies the live record did not get, and why.
        damaged: of a copy that was not whole any more, and was taken back.
    """

    used: tuple[int, ...] = ()
    is_seen: bool = False
    refused: Mapping[int, str] = field(default_factory=dict)
    damaged: DataLossError | None = None


class LiveCopies:
    """Our copies of a topic of a running cluster. Other processes may work at the same topic.

    Args:
        name: its managed ledger's.
        tiers: opens the tiers that copies may lie in; by default those of its policies and of the settings.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        name: str,
        tiers: Callable[[], AbstractContextManager[KnownTiers]] | None = None,
    ) -> None:
        assert cluster.mirror.offloads is not None
        self.name = name
        self.topic = topic_of_managed_ledger(name)
        self.tiers = tiers or partial(cluster.mirror.offloads.tiers_of, name)
        self._cluster = cluster
        self._mirror = cluster.mirror

    def read_info(self) -> ManagedLedgerInfo:
        """The live record as it is now; `UnknownTopicError` if there is none."""
        return self._cluster.records.require(self.name).info

    def read_mirror(self) -> ManagedLedgerInfo:
        """The mirror as it is now; an empty one if there is none."""
        known = self._mirror.records.read(self.name)
        return ManagedLedgerInfo() if known is None else known.info

    def policies(self) -> EffectivePolicies:
        """The policies of the topic; `OptionError` if they name no tier."""
        policies = self._cluster.policies.resolve(self.topic).offload
        if policies.driver is None:
            raise no_tier(self.topic)
        return policies

    def is_unfinished(self) -> bool:
        """True if `finish` has something to do; a new copy that is not given yet waits for who made it."""
        own = own_ledgers(self.read_mirror())
        if not own:
            return False
        found = self._cluster.records.read(self.name)
        live = {} if found is None else {each.ledger_id: each.copy_uuids for each in found.info.ledgers}
        return any(
            self._why_not_found(ledger) is None
            and (not replaced_of(ledger) or bool({*ledger.copy_uuids} & {*live.get(ledger.ledger_id, ())}))
            for ledger in own
        )

    def readable_filter(self) -> ChosenFilter:
        """The topic's filter; `OptionError` for one that leaves gaps, which brokers do not read."""
        chosen = self._mirror.filter_of(self.name)
        if chosen.name != "disabled":
            check_readable(chosen.mode)
        return chosen

    def why_unreadable(self, recorded: DriverMetadata) -> str | None:
        """Why the topic's brokers could not read a copy with this driver metadata, or we not; None if they can."""
        try:
            _brokers_record(recorded, self.policies())
            with self.tiers() as tiers:
                tiers.find(recorded)
        except OptionError as error:
            return str(error)
        return None

    def give(self, own: Sequence[LedgerRecord], policies: EffectivePolicies) -> Given:
        """Give verified copies to the live record, and have brokers use them.

        Args:
            own: ledgers of the mirror with complete copies of ours.

        Raises:
            DataLossError: the topic's broker does not read them; the live record has them no more.
            StoreError: a store or a broker fails; it can be called again, or `finish`.
        """
        if not own:
            return Given()
        if self._cluster.brokers.offload_state(self.topic).state == "RUNNING":
            why = "its broker offloads the topic at the moment; the copy is given later"
            return Given(refused=dict.fromkeys((each.ledger_id for each in own), why))
        name, environment = self.name, self._mirror
        copies, refused = self._readable(own, policies)
        damaged = self._damaged(copies)
        self._delete_damaged(copies, damaged)
        copies = [copy for copy in copies if copy.ledger_id not in damaged]
        if not copies:
            return Given(refused=refused, damaged=next(iter(damaged.values()), None))
        probe = self._probe(self._seen(copies, policies))
        for copy in copies:
            was = ", ".join(str(each.uuid) for each in replaced_of(copy)) or None
            self._record(copy, "a copy was made beside the brokers, and is verified", was, "offloaded")
        lag_begins_ms = environment.now_ms() + int(self._cluster.grace_s * 1000)
        given = GivenCopies(info=ManagedLedgerInfo())

        def give(live: ManagedLedgerInfo) -> ManagedLedgerInfo:
            nonlocal given
            given = with_copies(live, copies, lag_begins_ms)
            return given.info

        self._unload()
        self._cluster.records.update(name, give)
        used = [copy for copy in copies if copy.ledger_id in given.given]
        taken = self._taken(used)
        self._take_back(taken, "another process has taken it for left")
        used = [copy for copy in used if copy not in taken]
        is_seen, gone = self._use(used, probe, given.info, policies)
        lost = dict.fromkeys((copy.ledger_id for copy in taken), "another process has deleted its copy")
        return Given(
            used=tuple(copy.ledger_id for copy in used if copy.ledger_id not in gone),
            is_seen=is_seen,
            refused={**refused, **given.refused, **lost},
            damaged=next(iter((damaged | gone).values()), None),
        )

    def _readable(
        self, own: Sequence[LedgerRecord], policies: EffectivePolicies
    ) -> tuple[list[LedgerRecord], dict[int, str]]:
        """Copies as brokers record them, with what they replace settled; and why they could not read the others."""
        mirror = self._mirror.records.update(self.name, partial(settled, self.read_info())).info
        copies, refused = list[LedgerRecord](), dict[int, str]()
        with self.tiers() as tiers:
            for ledger in own:
                now = mirror.ledger(ledger.ledger_id)
                if now is None or now.copy_uuids != ledger.copy_uuids or not is_complete(now):
                    refused[ledger.ledger_id] = "another process has taken its copy"
                    continue
                try:
                    copy = _as_brokers_do(now, policies)
                    for each in recorded_copies(self.topic, now):
                        tiers.find(each.driver)
                except OptionError as error:
                    refused[ledger.ledger_id] = str(error)
                else:
                    copies.append(copy)
        return copies, refused

    def _taken(self, used: Sequence[LedgerRecord]) -> list[LedgerRecord]:
        """Those of copies that the live record has by now which another process has abandoned, or deleted."""
        mirror = {each.ledger_id: each for each in self.read_mirror().ledgers}
        taken = list[LedgerRecord]()
        for copy in used:
            ours = mirror.get(copy.ledger_id)
            is_there = ours is not None and ours.copy_uuids == copy.copy_uuids and is_complete(ours)
            is_left = ours is not None and not is_own(ours)  # it was confirmed, or forgotten
            if not is_there or (is_left and self._damaged([copy])):
                taken.append(copy)
        return taken

    def finish(self, policies: EffectivePolicies) -> None:
        """Finish what processes left: copies that the live record has, and others that it cannot get any more.

        What lies in a tier that is not configured is left, with a warning. Errors as of `give`.
        """
        live = self.read_info()
        mirror = self.read_mirror()
        live_ones, given = given_ledgers(live, mirror), list[LedgerRecord]()
        for copy in live_ones:
            why_not = self._why_not_found(copy)
            if why_not is None:
                given.append(copy)
            else:
                _log.warning(
                    "a copy of ledger %d of %s is not looked at: %s", copy.ledger_id, self.name, why_not
                )
        if given:
            self._reload(given, live)  # brokers that answer nothing are not ones that cannot read
            for copies in _by_place(given):
                self._finish_given(copies, live, policies)
        for ledger in own_ledgers(mirror):
            why = why_no_copy(live, ledger.ledger_id, [each.uuid for each in replaced_of(ledger)])
            if why is None or _uuids([ledger]) & _uuids(live_ones):
                continue
            try:
                check_not_alive(ledger, self._mirror.now_ms())
                self.delete(ledger, f"{why}; the copy was never used")
            except LiveAttemptError:
                pass  # its process finds out that it is not needed
            except OptionError as error:
                _log.warning("a copy of ledger %d of %s is left: %s", ledger.ledger_id, self.name, error)
        self.delete_replacements("its attempt was broken off")

    def _finish_given(
        self, copies: Sequence[LedgerRecord], live: ManagedLedgerInfo, policies: EffectivePolicies
    ) -> None:
        seen = self._seen(copies, policies)
        probe = self._probe(seen)
        if not seen or probe is not None:
            _, damaged = self._use(copies, probe, live, policies)
            for error in damaged.values():
                raise error
            return
        _log.warning("the brokers of %s do not read what was offloaded: it is taken back", self.topic)
        kept = self._take_back(copies, "brokers do not read it")
        self._confirm([each for each in copies if each.ledger_id in kept and not replaced_of(each)])

    def delete_replacements(self, why: str) -> None:
        """Delete what dead attempts at new copies have left, in the tiers that are known here."""
        registry, audit = RecordRegistry(self._mirror.records, self._mirror.now_ms), self._mirror.audit
        for copy in other_copies(self.read_mirror()):
            if copy.role is not OtherRole.REPLACEMENT:
                continue
            try:
                with self.tiers() as tiers:
                    tier = tiers.find(copy.driver)
                    registry.abandon(self.name, copy, why, audit)
                    delete_copy(tier, self.name, copy, audit, why)
                    registry.forget(self.name, copy, why, audit)
            except (AttemptError, OptionError) as error:
                _log.warning("attempt %s of %s is left: %s", copy.uuid, self.name, error)

    def delete(self, ledger: LedgerRecord, why: str) -> None:
        """Delete a copy or an attempt of ours, unless the live record has it after all.

        Args:
            ledger: of the mirror.
        """
        assert ledger.context is not None
        assert ledger.context.uuid is not None
        name, ledger_id, uuid = self.name, ledger.ledger_id, ledger.context.uuid
        left, records = ledger_attempt(name, ledger, why), self._mirror.records

        @contextmanager
        def needed() -> Iterator[Collection[ObjectKey]]:
            yield [left.key] if self._is_live(ledger_id, uuid) else []

        with self.tiers() as tiers:
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

    # --- what brokers use ----------------------------------------------------------------------

    def _use(
        self,
        copies: Sequence[LedgerRecord],
        probe: EntryPosition | None,
        live: ManagedLedgerInfo,
        policies: EffectivePolicies,
    ) -> tuple[bool, dict[int, DataLossError]]:
        """Have brokers use copies that the live record has; those that are not whole, or not read, are taken back.

        Args:
            probe: an entry that brokers answered with before; None if there is none that must be.
            live: the record, with the copies.

        Returns:
            Whether brokers were seen to read them, and the ledgers whose copies were not whole.
        """
        if not copies:
            return True, {}
        # first: as long as the topic is loaded with an older record, its next write closes it
        self._reload(copies, live)
        damaged = self._damaged(copies)
        self._take_back([copy for copy in copies if copy.ledger_id in damaged], "it is not whole any more")
        self._delete_damaged(copies, damaged)
        whole = [copy for copy in copies if copy.ledger_id not in damaged]
        if probe is not None and any(copy.ledger_id == probe.ledger_id for copy in whole):
            self._check_read(whole, probe)
            is_seen = True
        else:
            is_seen = self._probe(self._seen(whole, policies)) is not None
        self._confirm(whole)
        return is_seen, damaged

    def _damaged(self, copies: Sequence[LedgerRecord]) -> dict[int, DataLossError]:
        """The ledgers whose copies are not there, or not what the record says."""
        damaged: dict[int, DataLossError] = {}
        with self.tiers() as tiers:
            for copy in copies:
                try:
                    check_copies(tiers, self.topic, copy)
                except DataLossError as error:
                    damaged[copy.ledger_id] = error
        return damaged

    def _delete_damaged(self, copies: Sequence[LedgerRecord], damaged: Collection[int]) -> None:
        """Delete new copies that are not whole, so that they are made anew; offloads do it when they go on."""
        for copy in copies:
            if copy.ledger_id in damaged and replaced_of(copy):
                self.delete(copy, "the copy is not whole")

    def _confirm(self, copies: Sequence[LedgerRecord]) -> None:
        """Leave copies to the live record: no process looks at them again."""
        self._mirror.records.update(self.name, partial(mirrored, self.read_info(), confirmed=_uuids(copies)))

    def _why_not_found(self, copy: LedgerRecord) -> OptionError | None:
        """Why a copy's tier is not known here; None if it is."""
        try:
            with self.tiers() as tiers:
                for each in recorded_copies(self.topic, copy):
                    tiers.find(each.driver)
        except OptionError as error:
            return error
        return None

    def _seen(self, copies: Sequence[LedgerRecord], policies: EffectivePolicies) -> list[LedgerRecord]:
        """Those of which it shows when brokers do not read the tier: not where they read BookKeeper first."""
        seen = [copy for copy in copies if not (policies.read_priority.hot_first and copy.has_hot_copy)]
        if copies and not seen:
            _log.warning(
                "whether brokers read the tier of %s is not seen: they read BookKeeper first", self.topic
            )
        return seen

    def _probe(self, copies: Sequence[LedgerRecord]) -> EntryPosition | None:
        """Find an entry of one of these ledgers, the newest first, that brokers answer with; None if there is none.

        They do not answer with each: not with an encrypted one that is compressed, or one of very many properties.

        Raises:
            StoreError: no broker answers with what it knows of the topic either; that says nothing about entries.
        """
        for copy in copies[: -_PROBES - 1 : -1]:
            position = EntryPosition(copy.ledger_id, 0)
            try:
                if self._cluster.brokers.read_entry(self.topic, position) is not None:
                    return position
            except AccessDeniedError:
                raise
            except StoreError as error:
                _log.debug("the brokers of %s do not show %s: %s", self.topic, position, error)
        if copies:
            self._cluster.brokers.offloaded(self.topic)
            _log.warning("the brokers of %s show no entry of what is offloaded", self.topic)
        return None

    def _check_read(self, copies: Sequence[LedgerRecord], probe: EntryPosition) -> None:
        """Have the topic's broker read an entry of the tier; if it cannot, the live record has the copies no more."""
        looks = Looks(self._cluster.reload_timeout_s)
        while True:
            cause: StoreError | None = None
            try:
                if self._cluster.brokers.read_entry(self.topic, probe) is not None:
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
            f"the broker of {self.topic} does not read what was offloaded",
            ledger_id=probe.ledger_id,
            entry_id=probe.entry_id,
            found="no such entry" if cause is None else str(cause),
            hint="Its namespace's policies must name the tier and have credentials for it. "
            + (
                "It reads what it read before."
                if not kept
                else f"Only the new copies are there: ledgers {kept}."
            ),
        ) from cause

    def _take_back(self, copies: Sequence[LedgerRecord], why: str) -> list[int]:
        """Have the live record name these copies no more; the ledgers that have no other copy, which keep theirs."""
        lost = self._lost(copies, self.read_info())
        back = [copy for copy in copies if copy not in lost]
        live = self.read_info()
        if back:
            for copy in back:
                was = ", ".join(str(each.uuid) for each in replaced_of(copy)) or "not offloaded"
                self._record(copy, why, "offloaded", was)
            self._unload()
            live = self._cluster.records.update(self.name, partial(without_copies, copies=back)).info
            again = self._lost(back, live)  # `offload gc` deletes an index first, and then reads the record
            if again:
                for copy in again:
                    self._record(copy, "what it replaced is gone", None, "offloaded")
                live = self._cluster.records.update(self.name, partial(_put_again, copies=again)).info
            self._reload(back, live)
        return [
            copy.ledger_id
            for copy in copies
            if (known := live.ledger(copy.ledger_id)) is not None
            and set(known.copy_uuids).intersection(copy.copy_uuids)
        ]

    def _lost(self, copies: Sequence[LedgerRecord], live: ManagedLedgerInfo) -> list[LedgerRecord]:
        """Those of copies that replaced others whose objects are not there, as far as their tiers are known here."""
        olds = without_copies(live, copies)
        lost = list[LedgerRecord]()
        with self.tiers() as tiers:
            for copy in copies:
                ledger = olds.ledger(copy.ledger_id)
                if ledger is None or not replaced_of(copy):
                    continue
                try:
                    check_copies(tiers, self.topic, ledger)
                except OptionError:
                    continue
                except DataLossError as error:
                    _log.warning("what was replaced is not there any more: %s", error)
                    lost.append(copy)
        return lost

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

    # --- brokers -------------------------------------------------------------------------------

    def _unload(self) -> None:
        """Have no broker have the topic loaded when the live record is written next, if that can be.

        A broker that has it loaded finds at its next write that another has written, and closes it with entries on
        their way; its clients may then wait for long. One that is about to load it has none, and begins anew.
        """
        try:
            self._cluster.brokers.unload(self.topic)
        except AccessDeniedError:
            raise
        except StoreError as error:  # the topic is being closed, or loaded: it is reloaded afterwards
            _log.debug("%s is not unloaded before its record is written: %s", self.name, error)

    def _reload(self, copies: Sequence[LedgerRecord], live: ManagedLedgerInfo) -> None:
        """Have the topic loaded anew, and wait until its broker knows the copies that the live record has.

        Which of two copies it knows a broker does not say. But it begins a ledger when it loads a topic.

        Args:
            copies: those that were changed.
            live: the record as it is since then.

        Raises:
            StoreTimeoutError: it does not, in time. The next call goes on here.
        """
        looks, is_unloaded = Looks(self._cluster.reload_timeout_s), False
        replaced = [copy.ledger_id for copy in copies if replaced_of(copy)]
        last = max((ledger.ledger_id for ledger in live.ledgers), default=-1)
        while True:
            stale: Sequence[int] = ()
            cause: StoreError | None = None
            try:
                known = self._cluster.brokers.offloaded(self.topic)  # it is loaded by that
                stale = self._stale(known)
                if not is_unloaded and max(known, default=-1) <= last:
                    stale = [*stale, *replaced]
                if not stale:
                    return
                if not is_unloaded:
                    self._cluster.brokers.unload(self.topic)
                    is_unloaded = True
                    continue
            except AccessDeniedError:
                raise
            except StoreError as error:  # the topic is being closed, or loaded
                cause = error
            if looks.are_over:
                raise StoreTimeoutError(
                    f"the broker of {self.topic} does not use the cold copies that its record has",
                    found=", ".join(f"ledger {each}" for each in stale) or str(cause),
                    hint="Unload the topic: pulsar-admin topics unload; or call this again.",
                ) from cause
            looks.pause()

    def _stale(self, known: Mapping[int, bool]) -> list[int]:
        """Ledgers whose cold copies, which the live record has, their broker does not know of, or the other way.

        All, if it knows none of them: it has not loaded the topic yet, then.
        """
        recorded = {ledger.ledger_id: ledger.has_complete_copy for ledger in self.read_info().in_order}
        if not recorded.keys() & known.keys():
            return list(recorded)
        return [each for each, is_cold in recorded.items() if known.get(each, is_cold) != is_cold]


class Looks:
    """Looks again and again, for so long, each time after a longer pause."""

    def __init__(self, timeout_s: float) -> None:
        self._deadline = time.monotonic() + timeout_s
        self._pause_s = _LOOKS_S

    @property
    def are_over(self) -> bool:
        """True if there is no time for another."""
        return time.monotonic() > self._deadline

    def pause(self) -> None:
        """Wait for the next."""
        time.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.5, _LONGEST_LOOK_S)


def check_copies(tiers: KnownTiers, topic: TopicName, ledger: LedgerRecord) -> None:
    """Check that a ledger's copies are there and what its record says, by their indexes (`DataLossError`)."""
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


def is_complete(ledger: LedgerRecord) -> bool:
    """Return whether a ledger of a mirror has a complete copy."""
    return ledger.context is not None and ledger.context.complete


def _uuids(ledgers: Iterable[LedgerRecord]) -> frozenset[UUID]:
    return frozenset(uuid for ledger in ledgers for uuid in ledger.copy_uuids)


def _by_place(copies: Sequence[LedgerRecord]) -> list[list[LedgerRecord]]:
    """Copies by the tier that they lie in: a broker may be able to read one and not another."""
    places: dict[str, list[LedgerRecord]] = {}
    for copy in copies:
        driver = None if copy.context is None else copy.context.driver
        places.setdefault("" if driver is None else place_text(driver), []).append(copy)
    return list(places.values())


def _put_again(live: ManagedLedgerInfo, copies: Sequence[LedgerRecord]) -> ManagedLedgerInfo:
    """The live record with copies that were taken back, in the place of what they replaced."""
    return with_copies(live, copies, 0).info


def check_readable(mode: FilterMode) -> None:
    """Refuse a filter that leaves gaps (`OptionError`): brokers do not read objects with them."""
    if mode is not FilterMode.TOMBSTONE:
        raise OptionError(
            "brokers do not read objects that leave gaps",
            expected="the filter mode tombstone",
            found=mode.value,
        )


def _brokers_record(recorded: DriverMetadata, policies: EffectivePolicies) -> DriverMetadata:
    assert policies.driver is not None
    return broker_record(recorded, policies.driver)


def _as_brokers_do(ledger: LedgerRecord, policies: EffectivePolicies) -> LedgerRecord:
    """A ledger of a mirror with its copy as a broker records one, what a filter did to it, and what it replaces."""
    context = ledger.context
    assert context is not None
    assert context.driver is not None
    driver = _brokers_record(context.driver, policies)
    driver = driver.with_property(FILTER_PROPERTY, context.driver.get(FILTER_PROPERTY))
    return with_replaced(replace(ledger, context=replace(context, driver=driver)), replaced_of(ledger))
