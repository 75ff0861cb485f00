"""What a topic's policies ask for, done once: rollover, retention, offload, deletion of hot copies.

Of a topic with transactions a snapshot of them is persisted before, so that what they have settled can be offloaded.

Offloaded is by whole ledgers and thresholds, or by streaming, which goes on between the rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from offload_core.managed_ledger.environment import Environment
from offload_core.managed_ledger.managed_ledger import ManagedLedger
from offload_core.managed_ledger.opening import open_managed_ledger
from offload_core.managed_ledger.streaming.completion_requests import (
    DEFAULT_TIMEOUT_S,
    request_completion,
    requests_of,
)
from offload_core.managed_ledger.streaming.settings import StreamingSettings
from offload_core.managed_ledger.thresholds import DueLedgers, due_ledgers
from offload_core.managed_ledger.topic_offloads import TopicOffloads
from offload_core.managed_ledger.transactions.transactional_topic import TransactionalTopic
from offload_core.metadata import ManagedLedgerInfo
from offload_core.policies import EffectivePolicies
from offload_core.policy_store import ResolvedPolicies
from offload_hooks.errors import (
    LiveAttemptError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    OwnershipLostError,
)

KeptTopic = ManagedLedger | TransactionalTopic | TopicOffloads
"""A topic that is open here, with transactions or without, or one that others have open."""

_COMPLETION_S = 30.0
"""How long a round waits for a segment that somebody asked to be completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRound:
    """What one round did to a topic.

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
    """What offloads a topic."""
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
    """How policies have a topic streamed; None if not."""
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
    """What was skipped, by an offload that ended for a reason that is no failure."""
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
