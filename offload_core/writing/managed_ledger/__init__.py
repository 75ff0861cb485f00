"""Append to topics, over many ledgers of the hot tier, and offload them by policy."""

from offload_core.writing.managed_ledger.appender import RolloverPolicy
from offload_core.writing.managed_ledger.environment import (
    Environment,
    HotLedgers,
    open_environment,
    policies_by_name,
)
from offload_core.writing.managed_ledger.followed_transactions import (
    TransactionStatus,
    begin_times_ms,
    look_at_transactions,
    settle_transactions,
)
from offload_core.writing.managed_ledger.ledger_deletion import delete_managed_ledger
from offload_core.writing.managed_ledger.managed_ledger import ManagedLedger, open_managed_ledger
from offload_core.writing.managed_ledger.owned_record import owner_of, process_of
from offload_core.writing.managed_ledger.policy_tiers import PolicyReads, PolicyTiers
from offload_core.writing.managed_ledger.streaming.completion_requests import request_completion, waits_of
from offload_core.writing.managed_ledger.streaming.pool import StreamingPool
from offload_core.writing.managed_ledger.streaming.status import StreamingStatus
from offload_core.writing.managed_ledger.topic_offloads import (
    OffloadStatus,
    TopicOffloads,
    first_unoffloaded,
    no_tier,
    topic_offloads,
)
from offload_core.writing.managed_ledger.topic_reader import EntriesRead
from offload_core.writing.managed_ledger.transactional_topic import SnapshotPolicy, TransactionalTopic
from offload_core.writing.managed_ledger.upkeep import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    DueLedgers,
    KeptTopic,
    OffloadedTopic,
    TenantThreads,
    UpkeepLoop,
    UpkeepRound,
    complete_streamed,
    due_ledgers,
    keep_up,
)
from offload_core.writing.offload.recorded_segments import StreamingSettings

__all__ = [
    "FIRST_WAIT_S",
    "LONGEST_WAIT_S",
    "DueLedgers",
    "EntriesRead",
    "Environment",
    "HotLedgers",
    "KeptTopic",
    "ManagedLedger",
    "OffloadStatus",
    "OffloadedTopic",
    "PolicyReads",
    "PolicyTiers",
    "RolloverPolicy",
    "SnapshotPolicy",
    "StreamingPool",
    "StreamingSettings",
    "StreamingStatus",
    "TenantThreads",
    "TopicOffloads",
    "TransactionStatus",
    "TransactionalTopic",
    "UpkeepLoop",
    "UpkeepRound",
    "begin_times_ms",
    "complete_streamed",
    "delete_managed_ledger",
    "due_ledgers",
    "first_unoffloaded",
    "keep_up",
    "look_at_transactions",
    "no_tier",
    "open_environment",
    "open_managed_ledger",
    "owner_of",
    "policies_by_name",
    "process_of",
    "request_completion",
    "settle_transactions",
    "topic_offloads",
    "waits_of",
]
