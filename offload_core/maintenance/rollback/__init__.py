"""The way back from streaming offload: what it would lose, the streaming objects of a tier, and their deletion."""

from offload_core.maintenance.rollback.rollback_plan import (
    Need,
    PlannedLedger,
    PlannedTopic,
    RollbackPlan,
    plan_rollback,
)
from offload_core.maintenance.rollback.streaming_deletion import (
    Released,
    ReleasedRecords,
    delete_judged,
    release_possible,
    release_recorded,
    released,
)
from offload_core.maintenance.rollback.streaming_judging import (
    Allowed,
    JudgedLedger,
    JudgedObject,
    Verdict,
    judge,
    judge_tier,
)
from offload_core.maintenance.rollback.streaming_objects import (
    Coverage,
    StreamingListing,
    StreamingObject,
    list_streaming,
)

__all__ = [
    "Allowed",
    "Coverage",
    "JudgedLedger",
    "JudgedObject",
    "Need",
    "PlannedLedger",
    "PlannedTopic",
    "Released",
    "ReleasedRecords",
    "RollbackPlan",
    "StreamingListing",
    "StreamingObject",
    "Verdict",
    "delete_judged",
    "judge",
    "judge_tier",
    "list_streaming",
    "plan_rollback",
    "release_possible",
    "release_recorded",
    "released",
]
