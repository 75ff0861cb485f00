"""Move cold copies to another tier or format: plan, copy, verify, switch."""

from offload_core.maintenance.relocate.byte_copies import PlainCopy, PlainResult, PlainStatus
from offload_core.maintenance.relocate.moving import (
    DEFAULT_PARALLEL,
    Mover,
    OldCopies,
    Outcome,
    make_moves,
    throttled,
)
from offload_core.maintenance.relocate.planning import How, Move, TopicPlan, Wanted, plan_topic
from offload_core.writing.managed_ledger.copy_registry import CopyRegistry, MappingRegistry, RecordRegistry

__all__ = [
    "DEFAULT_PARALLEL",
    "CopyRegistry",
    "How",
    "MappingRegistry",
    "Move",
    "Mover",
    "OldCopies",
    "Outcome",
    "PlainCopy",
    "PlainResult",
    "PlainStatus",
    "RecordRegistry",
    "TopicPlan",
    "Wanted",
    "make_moves",
    "plan_topic",
    "throttled",
]
