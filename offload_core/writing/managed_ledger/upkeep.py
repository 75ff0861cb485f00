"""One round of a topic's policies: rollover, retention, offload, deletion of hot copies.

Before it, a snapshot of a topic's transactions is persisted, so that what they have settled can be offloaded. Ledgers
are offloaded whole, by thresholds, or by streaming, which goes on between the rounds.

Thresholds choose sealed ledgers as Pulsar does. A ledger is due if it and all sealed ledgers after it hold more than
the threshold in bytes, or if it has been sealed for the threshold in seconds; either is enough. What lies in a tier
already counts like what does not. So the ledgers that are due are the oldest. Source: Pulsar's `ManagedLedgerImpl`;
docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.managed_ledger import ManagedLedger
from offload_core.writing.managed_ledger.streaming.completion_requests import (
    DEFAULT_TIMEOUT_S,
    request_completion,
    requests_of,
)
from offload_core.writing.managed_ledger.streaming.status import StreamingSettings
from offload_core.writing.managed_ledger.topic_offloads import TopicOffloads
from offload_core.writing.managed_ledger.topic_opening import open_managed_ledger
from offload_core.writing.managed_ledger.transactional_topic import TransactionalTopic
from offload_core.writing.settings import ResolvedPolicies
from offload_hooks.errors import (
    LiveAttemptError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    OwnershipLostError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLedgers:
    """Ledgers that are in no tier yet, by the thresholds: due, or not.

    Attributes:
        ledger_ids: those that are due, the oldest first.
        skipped: all others, by id, and why each is not.
    """

    ledger_ids: tuple[int, ...] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)

    @property
    def target(self) -> EntryPosition | None:
        """The position up to which an offload takes all that is due; None if nothing is."""
        return EntryPosition(self.ledger_ids[-1] + 1, 0) if self.ledger_ids else None


def due_ledgers(info: ManagedLedgerInfo, policies: EffectivePolicies, now_ms: int) -> DueLedgers:
    """Choose the ledgers that are due by these policies; none where they name no driver."""
    due: list[int] = []
    skipped: dict[int, str] = {}
    newer_bytes = 0
    for ledger in reversed(info.in_order):
        if ledger.info.is_closed and not ledger.is_marked_for_deletion:
            newer_bytes += ledger.info.size or 0
        if ledger.has_complete_copy:
            continue
        why_not = _why_not(ledger, policies, newer_bytes, now_ms)
        if why_not is None:
            due.append(ledger.ledger_id)
        else:
            skipped[ledger.ledger_id] = why_not
    return DueLedgers(ledger_ids=tuple(reversed(due)), skipped=dict(sorted(skipped.items())))


def _why_not(ledger: LedgerRecord, policies: EffectivePolicies, held_bytes: int, now_ms: int) -> str | None:
    """Why a ledger is not due; None if it is."""
    if ledger.is_marked_for_deletion:
        return "it is being deleted"
    if not ledger.info.is_closed:
        return "it is open"
    if not ledger.info.entries:
        return "it has no entries"
    if ledger.context is not None and ledger.context.segments:
        return "it is offloaded by segments"
    if policies.driver is None:
        return "no tier is configured"
    limit_bytes, limit_s = policies.threshold_bytes, policies.threshold_s
    if limit_bytes is None and limit_s is None:
        return "no threshold is set"
    reasons = []
    if limit_bytes is not None:
        if held_bytes > limit_bytes:
            return None
        reasons.append(f"{held_bytes} bytes from it on; the threshold is {limit_bytes} bytes")
    if limit_s is not None:
        sealed_s = (now_ms - (ledger.info.timestamp_ms or 0)) / 1000
        if sealed_s >= limit_s:
            return None
        reasons.append(f"sealed {sealed_s:.0f} s ago; the threshold is {limit_s} s")
    return ", and ".join(reasons)


KeptTopic = ManagedLedger | TransactionalTopic | TopicOffloads
"""A topic that is open here, with transactions or without, or one that others have open."""

_COMPLETION_S = 30.0
"""How long a round waits for a segment that somebody asked to be completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRound:
    """The results of one round for a topic.

    Attributes:
        rolled: whether the ledger that was written was sealed.
        trimmed: ledgers that retention deleted, with all copies, also where it failed at another one.
        offloaded: ledgers that were offloaded, also by one that failed at a later ledger, or that others had begun.
        skipped: ledgers that are in no tier and were not to be offloaded, or not now, and why.
        hot_deleted: offloaded ledgers whose hot copy was deleted.
        failures: of each step that failed, by its name; the steps after it were tried all the same.
    """

    rolled: bool = False
    trimmed: tuple[int, ...] = ()
    offloaded: tuple[int, ...] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)
    hot_deleted: tuple[int, ...] = ()
    failures: Mapping[str, OffloadError] = field(default_factory=dict)


def offloads_of(kept: KeptTopic) -> ManagedLedger | TopicOffloads:
    """The object that offloads a topic."""
    return kept.topic if isinstance(kept, TransactionalTopic) else kept


def keep_up(kept: KeptTopic, policies: ResolvedPolicies, now_ms: int) -> UpkeepRound:
    """Do all that is due to a topic now. What fails is told, not raised.

    Rollover, retention, streaming and snapshots of transactions are its owner's alone, of a topic that is open here.

    Retention comes before the offload, which then does not move what is to be deleted. Where nobody sets it, nothing is
    deleted: Pulsar's default keeps what is not consumed yet, and here nobody consumes.
    """
    topic = offloads_of(kept)
    failures: dict[str, OffloadError] = {}
    rolled = False
    trimmed: list[int] = []
    offloaded: tuple[int, ...] = ()
    skipped: Mapping[int, str] = {}
    hot_deleted: list[int] = []
    if isinstance(topic, ManagedLedger):
        with _noted(failures, "rollover"):
            rolled = topic.roll_if_due()
    if isinstance(kept, TransactionalTopic):
        with _noted(failures, "transactions"):  # before retention: they are read before they go
            if requests_of(kept.topic.read_info()):  # somebody waits for what can be offloaded now
                kept.snapshot()
            else:
                kept.snapshot_if_due()
    if isinstance(topic, ManagedLedger) and policies.retention_origin != "default":
        with _noted(failures, "retention"):
            topic.trim(policies.retention, listener=trimmed.append)
    if isinstance(topic, ManagedLedger):
        with _noted(failures, "streaming"):
            _stream(topic, policies.offload)
    with _noted(failures, "offload"):
        due = due_ledgers(topic.read_info(), policies.offload, now_ms)
        skipped = due.skipped
        if policies.offload.is_streamed:
            streamed = dict.fromkeys(due.ledger_ids, "the topic is streamed by its owner")
            skipped = dict(sorted({**skipped, **streamed}.items()))
        elif due.target is not None:
            try:
                topic.offload_prefix(due.target)
                skipped = dict(sorted({**due.skipped, **topic.offload_status.waiting}.items()))
            except (LiveAttemptError, OffloadStoppedError) as error:
                skipped = _left(due, topic.offload_status.offloaded, error)
            finally:
                offloaded = topic.offload_status.offloaded
    with _noted(failures, "deletion of hot copies"):
        lag_s = policies.offload.deletion_lag_s
        if policies.offload.driver is not None and lag_s is not None:
            hot_deleted = topic.delete_hot_copies(lag_s)
    return UpkeepRound(
        rolled=rolled,
        trimmed=tuple(trimmed),
        offloaded=offloaded,
        skipped=skipped,
        hot_deleted=tuple(hot_deleted),
        failures=failures,
    )


def complete_streamed(
    environment: Environment, name: str, policies: EffectivePolicies, timeout_s: float = DEFAULT_TIMEOUT_S
) -> ManagedLedgerInfo:
    """Offload all of a streamed topic: by its owner, or here, where nobody has it open; the record as it is then.

    It is opened here only while it has no owner: no owner loses it by that. One that was killed counts as an owner.

    Raises: as `request_completion`, but that nobody has it open; or as `open_managed_ledger`.
    """
    try:
        return request_completion(environment.records, name, timeout_s=timeout_s)
    except OptionError:
        pass  # nobody has it open
    try:
        topic = open_managed_ledger(environment, name, create=False, only_free=True)
    except OwnershipLostError:  # opened by another just now
        return request_completion(environment.records, name, timeout_s=timeout_s)

    def answer(_: float) -> None:
        with suppress(OffloadStoppedError):  # the time is over, which ends the request
            topic.answer_requests(timeout_s)

    with topic:
        topic.set_streaming(_wanted(policies))
        return request_completion(environment.records, name, timeout_s=timeout_s, wait=answer)


def _wanted(policies: EffectivePolicies) -> StreamingSettings | None:
    """The streaming settings of policies; None if they have a topic not streamed."""
    if not policies.is_streamed or policies.driver is None:
        return None
    return StreamingSettings(
        max_segment_bytes=policies.max_segment_bytes,
        max_segment_age_s=policies.max_segment_age_s,
        block_bytes=policies.max_block_bytes,
        checksums=policies.writes_checksums,
    )


def _stream(topic: ManagedLedger, policies: EffectivePolicies) -> None:
    """Switch streaming as the policies say, and complete the segment if somebody asked for that."""
    wanted = _wanted(policies)
    if topic.streaming != wanted or topic.has_left_segments:
        topic.set_streaming(wanted)
    with suppress(OffloadStoppedError):  # it goes on, and whoever asked waits for the next round
        topic.answer_requests(_COMPLETION_S)


def _left(due: DueLedgers, offloaded: Sequence[int], why_not: OffloadError) -> Mapping[int, str]:
    """Ledgers that were skipped, by an offload that ended for a reason that is no failure."""
    left = [ledger_id for ledger_id in due.ledger_ids if ledger_id not in offloaded]
    held = why_not.ledger_id if why_not.ledger_id is not None else next(iter(left), None)
    reasons = {
        ledger_id: str(why_not) if ledger_id == held else f"ledger {held} comes before it"
        for ledger_id in left
    }
    return dict(sorted({**due.skipped, **reasons}.items()))


@contextmanager
def _noted(failures: dict[str, OffloadError], step: str) -> Iterator[None]:
    """A step of a round: its failure is kept, and the next step is tried."""
    try:
        yield
    except OffloadError as error:
        failures[step] = error
