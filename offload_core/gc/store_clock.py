"""The store's clock, by an object that is written, looked at and deleted.

If a crash leaves it, `offload doctor` tells of it by its name.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from offload_core.audit import AuditLog, Change, ChangeAction
from offload_core.doctor.probe import NAME
from offload_core.doctor.writing import seconds_ahead
from offload_core.tier import Tier


def measure_clock(tier: Tier, audit: AuditLog, prefix: str = "") -> timedelta:
    """How far the store's clock is ahead of this machine's; zero if they may agree.

    Raises:
        StoreError: of the tier or the audit log.
    """
    key = f"{prefix}{NAME}clock-{uuid4()}"
    audit.record(
        Change(action=ChangeAction.WRITE, why="the store's clock is compared; it is deleted again", key=key)
    )
    begun = datetime.now(UTC)
    tier.write_index(key, b"clock")
    try:
        ended = datetime.now(UTC)
        return timedelta(seconds=seconds_ahead(tier.stat(key).modified_at, begun, ended))
    finally:
        tier.delete([key])
