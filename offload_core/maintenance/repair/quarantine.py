"""`quarantine/`: where objects go that nothing reads any more, byte for byte, each with a note beside it.

An object `KEY` goes to `quarantine/KEY.quarantined` (with `-2`, `-3`, … where other bytes lie there already), which is
no key of an offloaded object, so that nothing lists or reads it; its note to the same with `.json`. The original is
deleted once the copy has been read back. Source: docs/repair.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from offload_core.storage.tier import Tier, upload_blocks
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import DataLossError, FormatError, ObjectNotFoundError
from offload_hooks.values import ObjectStat

FOLDER = "quarantine/"
NOTE_VERSION = 1

_SUFFIX = ".quarantined"
_PART_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Reason of a move: codes of findings, in words, and what took the objects' place."""

    codes: tuple[str, ...]
    why: str
    replaced_by: str | None = None
    managed_ledger: str | None = None
    ledger_id: int | None = None


def keep_copy(tier: Tier, key: str, reason: Reason, audit: AuditLog, now_ms: int) -> str | None:
    """Copy an object there, with its note; the copy's key, None if there is no such object.

    It can be called again: a copy that exists stays.

    Raises:
        DataLossError: the copy does not have the bytes of the object.
        StoreError: the tier fails, or the audit log.
    """
    stat = _stat(tier, key)
    if stat is None:
        return None
    digest = _digest(tier, key, stat.size_bytes)
    target, is_there = _place(tier, key, digest)
    if not is_there:
        audit.record(
            Change(
                action=ChangeAction.WRITE,
                why=reason.why,
                managed_ledger=reason.managed_ledger,
                ledger_id=reason.ledger_id,
                key=target,
                after=f"a copy of {key}",
            )
        )
        _copy(tier, stat, target)
        found = _stat(tier, target)
        if found is None or _digest(tier, target, found.size_bytes) != digest:
            raise DataLossError("a copy does not have the bytes of its original", key=target, expected=digest)
    note = f"{target}.json"
    if _stat(tier, note) is None:
        tier.write_index(note, _note(stat, target, digest, reason, now_ms), content_type="application/json")
    return target


def move(tier: Tier, keys: Sequence[str], reason: Reason, audit: AuditLog, now_ms: int) -> list[str]:
    """Move objects there, those that are; where they went. All are copied before the first is deleted.

    Raises:
        DataLossError, StoreError: as `keep_copy`; it can be called again.
    """
    places = {key: keep_copy(tier, key, reason, audit, now_ms) for key in keys}
    for key, target in places.items():
        if target is None:
            continue
        audit.record(
            Change(
                action=ChangeAction.MOVE,
                why=reason.why,
                managed_ledger=reason.managed_ledger,
                ledger_id=reason.ledger_id,
                key=key,
                before=key,
                after=target,
            )
        )
        tier.delete([key])
    return [target for target in places.values() if target is not None]


def is_put_aside(tier: Tier, key: str) -> bool:
    """Return whether an object of this key was moved there before. `StoreError`."""
    return _stat(tier, f"{FOLDER}{key}{_SUFFIX}") is not None


def _place(tier: Tier, key: str, digest: str) -> tuple[str, bool]:
    """Return the key for an object of these bytes, and True if it exists."""
    number = 1
    while True:
        target = f"{FOLDER}{key}{_SUFFIX}" + (f"-{number}" if number > 1 else "")
        stat = _stat(tier, target)
        if stat is None:
            return target, False
        if _digest(tier, target, stat.size_bytes) == digest:
            return target, True
        number += 1


def _stat(tier: Tier, key: str) -> ObjectStat | None:
    """Return the object under a key, without user metadata if these cannot be read."""
    try:
        return tier.stat(key)
    except ObjectNotFoundError:
        return None
    except FormatError:
        listed = next((each for each in tier.list_objects(key) if each.key == key), None)
        if listed is None:
            return None
        return ObjectStat(key=key, size_bytes=listed.size_bytes, modified_at=listed.modified_at)


def _parts(tier: Tier, key: str, size: int, part_bytes: int = _PART_BYTES) -> Iterator[memoryview]:
    for offset in range(0, size, part_bytes):
        yield tier.read_range(key, offset, min(part_bytes, size - offset))


def _digest(tier: Tier, key: str, size: int) -> str:
    digest = hashlib.sha256()
    for part in _parts(tier, key, size):
        digest.update(part)
    return digest.hexdigest()


def _copy(tier: Tier, stat: ObjectStat, target: str) -> None:
    metadata: Mapping[str, str] = stat.user_metadata
    if stat.size_bytes <= _PART_BYTES:
        data = tier.read_range(stat.key, 0, stat.size_bytes) if stat.size_bytes else b""
        tier.write_index(target, data, content_type=stat.content_type, user_metadata=metadata)
        return
    part_bytes = max(_PART_BYTES, tier.describe().capabilities.min_block_bytes)
    upload_blocks(
        tier,
        target,
        _parts(tier, stat.key, stat.size_bytes, part_bytes),
        block_bytes=part_bytes,
        content_type=stat.content_type,
        user_metadata=metadata,
    )


def _note(stat: ObjectStat, target: str, digest: str, reason: Reason, now_ms: int) -> bytes:
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    fields = {
        "version": NOTE_VERSION,
        "at": at.isoformat(timespec="milliseconds"),
        "from": stat.key,
        "to": target,
        "size_bytes": stat.size_bytes,
        "sha256": digest,
        "user_metadata": dict(stat.user_metadata),
        "codes": list(reason.codes),
        "why": reason.why,
        "replaced_by": reason.replaced_by,
    }
    return json.dumps(fields, indent=2).encode() + b"\n"
