"""Changes of one pair: make objects anew beside or under the old keys, put originals aside, switch the record.

Each change is in the audit log before it is made, and can be made again.

Objects that nothing reads any more go to `quarantine/`, byte for byte, each with a note beside it: `KEY` goes to
`quarantine/KEY.quarantined` (with `-2`, `-3`, … where other bytes lie there already), which is no key of an offloaded
object, so that nothing lists or reads it; its note to the same with `.json`. The original is deleted once the copy has
been read back. Source: docs/repair.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from uuid import UUID

from offload_core.format.codec.block_checksums import pack_block_checksums
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.maintenance.repair.damage_judging import Evidence, is_whole
from offload_core.maintenance.repair.repair_plan import RecordedAttempt
from offload_core.maintenance.verify import Finding
from offload_core.metadata.catalogue.index_reading import read_block_checksums
from offload_core.metadata.catalogue.listing import Pair, look_up
from offload_core.metadata.records import OtherCopy, OtherRole
from offload_core.metadata.records.attempts import place_of
from offload_core.metadata.records.replacements import CopyForm, other_copies
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier, upload_blocks
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry, Replacement
from offload_hooks.errors import DataLossError, FormatError, ObjectNotFoundError
from offload_hooks.values import ObjectStat

QUARANTINE = "quarantine/"
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

    def change(self, action: ChangeAction, key: str, after: str, before: str | None = None) -> Change:
        """The line of the audit log for a change for this reason."""
        return Change(
            action=action,
            why=self.why,
            managed_ledger=self.managed_ledger,
            ledger_id=self.ledger_id,
            key=key,
            before=before,
            after=after,
        )


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
        audit.record(reason.change(ChangeAction.WRITE, target, f"a copy of {key}"))
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
        audit.record(reason.change(ChangeAction.MOVE, key, target, before=key))
        tier.delete([key])
    return [target for target in places.values() if target is not None]


def is_put_aside(tier: Tier, key: str) -> bool:
    """Return whether an object of this key was moved there before. `StoreError`."""
    return _stat(tier, f"{QUARANTINE}{key}{_SUFFIX}") is not None


def _place(tier: Tier, key: str, digest: str) -> tuple[str, bool]:
    """Return the key for an object of these bytes, and True if it exists."""
    number = 1
    while True:
        target = f"{QUARANTINE}{key}{_SUFFIX}" + (f"-{number}" if number > 1 else "")
        stat = _stat(tier, target)
        if stat is None:
            return target, False
        if _digest(tier, target, stat.size_bytes) == digest:
            return target, True
        number += 1


def _stat(tier: Tier, key: str) -> ObjectStat | None:
    """Return the object under a key, without user metadata if these cannot be read."""
    try:
        return look_up(tier, key)
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
    at = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
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


def checksums_with_index(tier: Tier, pair: Pair, index: bytes) -> bytes | None:
    """Return the checksum file for a pair with this new index; None if it has none for its data object.

    Raises:
        StoreError: the tier fails.
    """
    if pair.block_checksums is None or pair.data is None:
        return None
    try:
        known = read_block_checksums(tier, pair.key, pair.block_checksums.size_bytes)
    except (FormatError, ObjectNotFoundError):
        return None  # verification reports it, and makes others
    if known.data_length != pair.data.size_bytes:
        return None
    return pack_block_checksums(replace(known, index_length=len(index), index_crc=crc32c(index)))


class PairChanges:
    """Changes pairs of a tier; all its calls can be made again.

    They raise `StoreError` if the tier fails, or the audit log; `DataLossError` where what was written is not what it
    must be.
    """

    def __init__(self, tier: Tier, audit: AuditLog, now_ms: Callable[[], int]) -> None:
        self._tier = tier
        self._audit = audit
        self._now_ms = now_ms

    def write_index(self, evidence: Evidence) -> tuple[str, ...]:
        """Write an index that was made anew, under the key of the old one, a copy of which is put aside."""
        assert evidence.index is not None
        key, reason = evidence.key, _reason(evidence)
        self._keep(key.index_key, reason)
        checksums = (
            key.checksum_keys if evidence.pair.index_checksums or evidence.pair.data_checksums else None
        )
        made = make_checksums(evidence.index)
        if checksums is not None and not self._has(checksums[1], made):
            self._keep(checksums[1], reason)
        self._audit.record(_write(evidence, key.index_key, "an index made anew from its data object"))
        # The checksums first: an index that they do not fit is found, and made anew by the next call.
        checksum_file = checksums_with_index(self._tier, evidence.pair, evidence.index)
        if checksum_file is not None and not self._has(key.block_checksums_key, checksum_file):
            user_metadata = self._tier.stat(key.block_checksums_key).user_metadata
            self._keep(key.block_checksums_key, reason)
            self._audit.record(
                _write(evidence, key.block_checksums_key, "checksums with that of the index made anew")
            )
            self._tier.write_index(key.block_checksums_key, checksum_file, user_metadata=user_metadata)
        if checksums is not None:
            self._tier.write_index(checksums[1], made)
        self._tier.write_index(key.index_key, evidence.index, user_metadata=evidence.index_metadata or {})
        return (key.index_key,)

    def _keep(self, key: str, reason: Reason) -> None:
        keep_copy(self._tier, key, reason, self._audit, self._now_ms())

    def _has(self, key: str, data: bytes) -> bool:
        """Return whether these bytes are under a key already."""
        stat = look_up(self._tier, key)
        if stat is None or stat.size_bytes != len(data):
            return False
        return bytes(self._tier.read_range(key, 0, stat.size_bytes)) == data

    def write_checksums(self, evidence: Evidence) -> tuple[str, ...]:
        """Write the `.crc` file of a MapFile's data anew."""
        checksums, data = evidence.key.checksum_keys, evidence.pair.data
        assert checksums is not None
        assert data is not None
        self._keep(checksums[0], _reason(evidence))
        self._audit.record(_write(evidence, checksums[0], "checksums made anew from the data file"))
        whole = self._tier.read_range(evidence.key.data_key, 0, data.size_bytes)
        self._tier.write_index(checksums[0], make_checksums(whole))
        return (checksums[0],)

    def write_salvaged(self, evidence: Evidence) -> tuple[str, ...]:
        """Write the entries that a damaged object still holds as a new pair; do nothing if that exists."""
        salvage = evidence.salvage
        assert salvage is not None
        target = salvage.target
        if is_whole(self._tier, salvage):
            return ()
        self._audit.record(
            _write(evidence, target.data_key, f"{evidence.entries} entries of {evidence.key.data_key}")
        )
        salvage.write(self._tier)
        if not is_whole(self._tier, salvage):
            raise DataLossError(
                "the copy that was saved does not have the entries of its object, which was not touched",
                key=target.data_key,
            )
        return (target.data_key, target.index_key)

    def put_aside(self, evidence: Evidence) -> tuple[str, ...]:
        """Move all objects of the pair to the quarantine."""
        return self._put_aside(evidence.key, _reason(evidence))

    def put_pair_aside(
        self, key: ObjectKey, findings: Sequence[Finding], why: str, new: ObjectKey | None = None
    ) -> tuple[str, ...]:
        """Move the objects of a pair whose place another one took."""
        replaced_by = None if new is None else new.data_key
        codes = tuple(sorted({each.code.value for each in findings}))
        reason = Reason(codes=codes, why=why, replaced_by=replaced_by, ledger_id=key.ledger_id)
        return self._put_aside(key, reason)

    def _put_aside(self, key: ObjectKey, reason: Reason) -> tuple[str, ...]:
        keys = [key.data_key, key.index_key, *key.companion_keys]  # an index alone is put aside as well
        return tuple(move(self._tier, keys, reason, self._audit, self._now_ms()))


def _reason(evidence: Evidence) -> Reason:
    return Reason(
        codes=tuple(sorted(code.value for code in evidence.codes)),
        why=evidence.choice.why,
        replaced_by=None if evidence.replacement is None else evidence.replacement.data_key,
        managed_ledger=evidence.key.managed_ledger
        or (evidence.known.managed_ledger if evidence.known else None),
        ledger_id=evidence.key.ledger_id,
    )


def _write(evidence: Evidence, key: str, after: str) -> Change:
    reason = _reason(evidence)
    written = reason.change(ChangeAction.WRITE, key, after)
    return replace(written, why=f"{reason.why}: {', '.join(reason.codes)}", uuid=evidence.key.uuid)


def replacement_for(
    records: ManagedLedgerRecords,
    known: RecordedAttempt,
    old: ObjectKey,
    new: ObjectKey,
    tier: Tier,
    audit: AuditLog,
    now_ms: Callable[[], int],
) -> Replacement:
    """Return the replacement of a damaged copy, in a record that can name it (`can_name`)."""
    assert known.driver is not None
    is_segment = new.object_format is ObjectFormat.STREAMING
    copy = OtherCopy(
        uuid=new.uuid,
        form=CopyForm.SEGMENT if is_segment else CopyForm.LEDGER,
        driver=place_of(known.driver),
        since_ms=now_ms(),
        segment=old.uuid if is_segment else None,
        ledger_ids=tuple(sorted(known.infos)),
    )
    return Replacement(
        registry=RecordRegistry(records, now_ms),
        name=known.managed_ledger,
        copy=copy,
        old=old.uuid,
        tier=tier,
        audit=audit,
        why="its copy is damaged",
    )


def can_name(records: ManagedLedgerRecords, known: RecordedAttempt, old: ObjectKey, new: ObjectKey) -> bool:
    """Return whether a record that names one copy can name the other, by its uuid and tier alone.

    It cannot name one that was replaced, which is to be deleted.

    Raises:
        StoreError, MetadataError: of the records.
    """
    if known.driver is None or old.is_mapfile or new.is_mapfile or new.folder:
        return False
    found = records.read(known.managed_ledger)
    others = () if found is None else other_copies(found.info)
    return all(each.uuid != new.uuid or each.role is OtherRole.REPLACEMENT for each in others)


def pulsars_bits(uuid: UUID) -> tuple[int, int]:
    """Return a uuid as Pulsar's records have it: its most and least bits, signed."""
    most, least = divmod(uuid.int, 1 << 64)
    return most - (most >> 63 << 64), least - (least >> 63 << 64)
