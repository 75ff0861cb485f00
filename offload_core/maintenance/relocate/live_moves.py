"""Plans of moves of a running cluster's copies: of what its brokers can read, after what processes left is finished."""

from __future__ import annotations

from dataclasses import replace

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.live import LiveCopies, LiveReplacements
from offload_core.maintenance.live.live_copies import check_readable
from offload_core.maintenance.relocate.planning import Left, Move, TopicPlan, Wanted, plan_topic
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import CopyForm, LedgerRecord, ManagedLedgerInfo, replaced_of
from offload_core.metadata.records.live_changes import is_own, own_ledgers
from offload_core.storage.tier import Tier

_NO_SEGMENTS = "brokers do not read segments"


def plan_live_topic(
    live: LiveReplacements, topic: TopicName, wanted: Wanted, target: Tier, *, is_dry: bool
) -> TopicPlan:
    """Plan the moves of a topic, after what processes left of it is finished, or deleted.

    Args:
        is_dry: change nothing.

    Raises:
        UnknownTopicError: the cluster has no record of it.
        DataLossError: a copy that was given before is not whole, or not read, and was taken back.
        OptionError: policies name no tier, or brokers do not read what the filter leaves.
        StoreError: a store or a broker fails.
    """
    if wanted.filter is not None:
        check_readable(wanted.filter)
    copies = live.copies(topic)
    plan = _plan(copies, wanted, target)
    own = own_ledgers(copies.read_mirror())
    if is_dry:
        waiting = tuple(each.ledger_id for each in own if replaced_of(each))
        why = "a new copy is made, and not given to its record yet"
        left = (Left(topic=topic, ledger_ids=waiting, why=why),) if waiting else ()
        return replace(plan, left=(*plan.left, *left))
    if not (plan.moves or own):
        return plan
    copies.finish(copies.policies())
    return _plan(copies, wanted, target)


def _plan(copies: LiveCopies, wanted: Wanted, target: Tier) -> TopicPlan:
    live, mirror = copies.read_info(), copies.read_mirror()
    plan = plan_topic(copies.topic, _of_live(live, mirror), wanted)
    moves, left = list[Move](), list(plan.left)
    unreadable = {each: _why_not(each, copies, target) for each in {move.format for move in plan.moves}}
    for move in plan.moves:
        why = unreadable[move.format] if move.form is CopyForm.LEDGER else _NO_SEGMENTS
        if why is None:
            moves.append(move)
        else:
            left.append(Left(topic=plan.topic, ledger_ids=move.ledger_ids, why=why))
    return replace(plan, moves=tuple(moves), left=tuple(left))


def _why_not(format_: ObjectFormat, copies: LiveCopies, target: Tier) -> str | None:
    """Why a topic's brokers could not read copies in this format; None if they can."""
    if format_ is ObjectFormat.STREAMING:
        return _NO_SEGMENTS
    return copies.why_unreadable(tier_record(target, format_))


def _of_live(live: ManagedLedgerInfo, mirror: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """The mirror's ledgers with copies that the live record has, or that are to take their place."""

    def planned(ledger: LedgerRecord) -> LedgerRecord:
        ours = mirror.ledger(ledger.ledger_id)
        if ours is None or not ledger.has_complete_copy or (is_own(ours) and not replaced_of(ours)):
            return replace(ledger, context=None)
        return ours

    return replace(live, ledgers=tuple(map(planned, live.ledgers)))
