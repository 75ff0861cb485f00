"""The way back from streaming offload: what it would lose, the streaming objects of a tier, and their deletion."""

from offload_core.rollback.deletion import (
    Released,
    ReleasedRecords,
    delete_judged,
    release_possible,
    release_recorded,
    released,
)
from offload_core.rollback.judging import (
    Allowed,
    Judged,
    JudgedLedger,
    Verdict,
    judge,
    judge_tier,
)
from offload_core.rollback.plan import Need, PlannedLedger, PlannedTopic, RollbackPlan, plan_rollback
from offload_core.rollback.streaming_objects import (
    Coverage,
    StreamingListing,
    StreamingObject,
    list_streaming,
)

__all__ = [
    "Allowed",
    "Coverage",
    "Judged",
    "JudgedLedger",
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
