"""Deletes streaming objects that were judged: for each ledger a line in the audit log, then the index, then the data.

A crash leaves a data object without its index, which nobody reads and which is found again: the same call goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from offload_core.catalogue.topics import UNKNOWN_TOPIC, TopicName, managed_ledger_of_topic
from offload_core.managed_ledger.audit_log import AuditLog, Deletion
from offload_core.offload.attempt_objects import delete_attempt
from offload_core.rollback.judging import Allowed, Judged
from offload_core.tier import Tier
from offload_hooks.errors import placed


def delete_judged(
    tier: Tier,
    judged: Iterable[Judged],
    audit: AuditLog,
    *,
    allowed: Allowed,
    listener: Callable[[Judged], None] = lambda _: None,
) -> None:
    """Delete those that may be, and tell the listener of each when it is gone; what fails first ends it.

    Args:
        allowed: what may go besides what nobody needs.

    Raises:
        StoreError: of the tier, with the object, or of the audit log; it can be called again.
    """
    for each in judged:
        if not allowed.allows(each.verdict):
            continue
        for deletion in _deletions(each):
            audit.record(deletion)
        with placed(key=each.object.key.data_key):
            delete_attempt(tier, each.object.key)
        listener(each)


def _deletions(judged: Judged) -> Iterable[Deletion]:
    uuid = judged.object.key.uuid
    why = f"streaming objects are rolled back; {judged.why}"
    if not judged.ledgers:
        topic = judged.topics[0] if judged.topics else None
        yield Deletion(managed_ledger=_name(topic), ledger_id=None, copy="cold", why=why, uuid=uuid)
    for ledger in judged.ledgers:
        yield Deletion(
            managed_ledger=_name(ledger.topic),
            ledger_id=ledger.ledger_id,
            copy="cold",
            why=why,
            uuid=uuid,
            entries=None if ledger.record is None else ledger.record.info.entries,
            size_bytes=None if ledger.record is None else ledger.record.info.size,
        )


def _name(topic: TopicName | None) -> str:
    return UNKNOWN_TOPIC if topic is None else managed_ledger_of_topic(topic)
