"""Judging damaged pairs by executors: the task of one pair, and what is decided of it, without what it holds."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.catalogue.listing import find_pair
from offload_core.codec.object_format import ObjectKey
from offload_core.codec.salvaged_objects import LostEntries
from offload_core.repair.judging import Judged, is_whole, judge
from offload_core.repair.known import Known
from offload_core.repair.other_copies import find_other
from offload_core.repair.plan import Action, Choice
from offload_core.tier import Tier
from offload_core.verify import Finding
from offload_hooks.errors import OffloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """A pair that is to be judged.

    Attributes:
        known: what records say of it.
        copies: objects of the same ledger, of whichever topic.
    """

    key: ObjectKey
    findings: tuple[Finding, ...]
    known: Known | None = None
    copies: tuple[ObjectKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """What is decided of a pair.

    Attributes:
        target: the data object that its entries are to be saved to.
        other: another copy that makes that needless.
        is_saved: the target is there as a whole.
        failure: why it could not be judged.
    """

    choice: Choice
    entries: int | None = None
    lost: LostEntries | None = None
    target: ObjectKey | None = None
    other: ObjectKey | None = None
    is_saved: bool = False
    failure: OffloadError | None = None

    @property
    def replacement(self) -> ObjectKey | None:
        """What takes its place."""
        return self.target or self.other


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePairs:
    """Judges pairs of a tier; what is raised of one is said of that one."""

    tier: Tier
    now_ms: int

    def __call__(self, task: JudgeTask) -> JudgedPair:
        """Judge one pair."""
        try:
            judged = judge_pair(self.tier, task, self.now_ms)
            if judged is None:
                why = task.findings[0].code.helps
                return JudgedPair(choice=Choice(action=Action.LEAVE, why=why))
            salvage = judged.salvage if judged.choice.action is Action.SALVAGE else None
            return JudgedPair(
                choice=judged.choice,
                entries=judged.entries,
                lost=judged.lost,
                target=None if salvage is None else salvage.target,
                other=judged.other,
                is_saved=salvage is not None and is_whole(self.tier, salvage),
            )
        except OffloadError as error:
            why = f"it could not be looked at: {error}"
            return JudgedPair(
                choice=Choice(action=Action.LEAVE, why=why), failure=error.at(key=task.key.data_key)
            )


def judge_pair(tier: Tier, task: JudgeTask, now_ms: int) -> Judged | None:
    """What there is of a pair, and what is done about it; None if there is nothing.

    Raises:
        StoreError: the tier fails.
    """
    pair = find_pair(tier, task.key)
    if pair is None:
        return None
    judged = judge(tier, pair, list(task.findings), task.known, now_ms=now_ms)
    if judged.choice.action in (Action.SALVAGE, Action.NOT_SAVABLE) and judged.salvage is not None:
        name = None if judged.known is None else judged.known.managed_ledger
        judged.other = find_other(tier, judged.salvage, name, task.copies)
        if judged.other is not None:
            why = f"it is damaged; {judged.other.data_key} has all of it, and is right"
            judged.choice = Choice(action=Action.OTHER_COPY, why=why)
    return judged
