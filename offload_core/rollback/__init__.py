"""The way back from streaming offload: what it would lose, the streaming objects of a tier, and their deletion."""

from offload_core.rollback.deletion import delete_judged
from offload_core.rollback.judging import (
    Allowed,
    Judged,
    JudgedLedger,
    Verdict,
    judge,
    judge_tier,
)
from offload_core.rollback.objects import StreamingListing, StreamingObject, list_streaming
from offload_core.rollback.plan import Need, PlannedLedger, PlannedTopic, RollbackPlan, plan_rollback
from offload_core.rollback.release import (
    Released,
    ReleasedRecords,
    release_possible,
    release_recorded,
    released,
)
from offload_core.rollback.streamed import Coverage

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
