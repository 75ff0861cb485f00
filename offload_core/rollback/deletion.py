"""Deletes streaming objects that were judged: for each ledger a line in the audit log, then the index, then the data.

A crash leaves some data objects without their indexes, which nobody reads and which are found again: the same
call goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from offload_core.audit import AuditLog, Deletion
from offload_core.catalogue.topics import UNKNOWN_TOPIC, TopicName, managed_ledger_of_topic
from offload_core.offload.attempt_objects import delete_attempt
from offload_core.rollback.judging import Allowed, Judged
from offload_core.tier import Tier
from offload_hooks.errors import placed

DEFAULT_AT_ONCE = 16
"""Objects: a deletion waits for a store far away, three times."""


def delete_judged(
    tier: Tier,
    judged: Iterable[Judged],
    audit: AuditLog,
    *,
    allowed: Allowed,
    listener: Callable[[Judged], None] = lambda _: None,
    at_once: int = DEFAULT_AT_ONCE,
) -> None:
    """Delete those that may be, some at once, and tell the listener of each when it is gone.

    After a failure no further one is begun.

    Args:
        allowed: what may go besides what nobody needs.
        listener: may be called from several threads.

    Raises:
        StoreError: of the tier, with the object, or of the audit log; it can be called again.
    """
    failed = threading.Event()

    def delete(each: Judged) -> None:
        if failed.is_set():
            return
        try:
            for deletion in _deletions(each):
                audit.record(deletion)
            with placed(key=each.object.key.data_key):
                delete_attempt(tier, each.object.key)
        except BaseException:
            failed.set()
            raise
        listener(each)

    with ThreadPoolExecutor(at_once, thread_name_prefix="offload-rollback") as pool:
        due = [pool.submit(delete, each) for each in judged if allowed.allows(each.verdict)]
        try:
            for each in due:
                each.result()
        finally:
            failed.set()  # Ctrl-C as well


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
