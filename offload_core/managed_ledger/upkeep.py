"""What a topic's policies ask for, done once: rollover, retention, offload by thresholds, deletion of hot copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from offload_core.managed_ledger.managed_ledger import ManagedLedger
from offload_core.managed_ledger.thresholds import DueLedgers, due_ledgers
from offload_core.managed_ledger.topic_offloads import TopicOffloads
from offload_core.policy_store import ResolvedPolicies
from offload_hooks.errors import LiveAttemptError, OffloadError, OffloadStoppedError


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


def keep_up(topic: ManagedLedger | TopicOffloads, policies: ResolvedPolicies, now_ms: int) -> UpkeepRound:
    """Do all that is due to a topic now. What fails is told, not raised.

    Rollover and retention are its owner's alone, of a topic that is open here.

    Retention comes before the offload, which then does not move what is to be deleted. Where nobody sets it, nothing is
    deleted: Pulsar's default keeps what is not consumed yet, and here nobody consumes.
    """
    failures: dict[str, OffloadError] = {}
    rolled = False
    trimmed: list[int] = []
    offloaded: tuple[int, ...] = ()
    skipped: Mapping[int, str] = {}
    hot_deleted: list[int] = []
    if isinstance(topic, ManagedLedger):
        with _noted(failures, "rollover"):
            rolled = topic.roll_if_due()
        if policies.retention_origin != "default":
            with _noted(failures, "retention"):
                topic.trim(policies.retention, listener=trimmed.append)
    with _noted(failures, "offload"):
        due = due_ledgers(topic.read_info(), policies.offload, now_ms)
        skipped = due.skipped
        if isinstance(topic, ManagedLedger) and topic.is_streamed:
            skipped = dict(
                sorted({**skipped, **dict.fromkeys(due.ledger_ids, "its topic is streamed")}.items())
            )
        elif due.target is not None:
            try:
                topic.offload_prefix(due.target)
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
