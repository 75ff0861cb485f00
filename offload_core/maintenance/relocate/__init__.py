"""Moving cold copies to another tier or format: planned from records, copied, verified, switched."""

from offload_core.maintenance.relocate.moving import Moved, Mover, OldCopies
from offload_core.maintenance.relocate.plain_copies import PlainCopy, PlainResult, PlainStatus
from offload_core.maintenance.relocate.planning import (
    DEFAULT_SEGMENT_BYTES,
    How,
    Left,
    Move,
    TopicPlan,
    Wanted,
    plan_topic,
)
from offload_core.maintenance.relocate.relocation import DEFAULT_PARALLEL, Outcome, make_moves, throttled

__all__ = [
    "DEFAULT_PARALLEL",
    "DEFAULT_SEGMENT_BYTES",
    "How",
    "Left",
    "Move",
    "Moved",
    "Mover",
    "OldCopies",
    "Outcome",
    "PlainCopy",
    "PlainResult",
    "PlainStatus",
    "TopicPlan",
    "Wanted",
    "make_moves",
    "plan_topic",
    "throttled",
]
