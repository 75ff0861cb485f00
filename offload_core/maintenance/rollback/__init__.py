"""Go back from streaming offload: plan what it would lose, delete streaming objects."""

from offload_core.maintenance.rollback.rollback_plan import (
    Need,
    PlannedLedger,
    PlannedTopic,
    RollbackPlan,
    plan_rollback,
)
from offload_core.maintenance.rollback.streaming_deletion import (
    Released,
    delete_judged,
    release_recorded,
    released,
)
from offload_core.maintenance.rollback.streaming_objects import (
    Allowed,
    Coverage,
    JudgedObject,
    StreamingObject,
    Verdict,
    judge_tier,
    list_streaming,
)

__all__ = [
    "Allowed",
    "Coverage",
    "JudgedObject",
    "Need",
    "PlannedLedger",
    "PlannedTopic",
    "Released",
    "RollbackPlan",
    "StreamingObject",
    "Verdict",
    "delete_judged",
    "judge_tier",
    "list_streaming",
    "plan_rollback",
    "release_recorded",
    "released",
]
