"""Change one judged pair: make objects anew beside or under the old keys, put originals aside, switch the record.

Each change is in the audit log before it is made, and can be made again. Source: docs/repair.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from offload_core.format.codec.block_checksums import crc32c, pack_block_checksums
from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.maintenance.repair.damage_judging import Judged, is_whole
from offload_core.maintenance.repair.quarantine import Reason, keep_copy, move
from offload_core.maintenance.repair.repair_targets import RecordedAttempt
from offload_core.maintenance.verify import Finding
from offload_core.metadata.catalogue.index_reading import read_block_checksums
from offload_core.metadata.catalogue.listing import Pair
from offload_core.metadata.records import OtherCopy, OtherRole
from offload_core.metadata.records.replacement_record import CopyForm, other_copies
from offload_core.metadata.records.segment_shares import place_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_core.writing.managed_ledger.replacements import Replacement
from offload_hooks.errors import DataLossError, FormatError, ObjectNotFoundError


def checksums_with_index(tier: Tier, pair: Pair, index: bytes) -> bytes | None:
    """Return what is to lie beside a pair that has this index; None if nothing of its data object does.

    Raises:
        StoreError: the tier fails.
    """
    if pair.block_checksums is None or pair.data is None:
        return None
    try:
        known = read_block_checksums(tier, pair.key, pair.block_checksums.size_bytes)
    except (FormatError, ObjectNotFoundError):
        return None  # verification says it, and makes others
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

    def write_index(self, judged: Judged) -> tuple[str, ...]:
        """An index that was made anew, under the key of the old one, which is kept aside."""
        assert judged.index is not None
        key, reason = judged.key, _reason(judged)
        keep_copy(self._tier, key.index_key, reason, self._audit, self._now_ms())
        checksums = key.checksum_keys if judged.pair.index_checksums or judged.pair.data_checksums else None
        made = make_checksums(judged.index)
        if checksums is not None and not self._has(checksums[1], made):
            keep_copy(self._tier, checksums[1], reason, self._audit, self._now_ms())
        self._audit.record(_write(judged, key.index_key, "an index made anew from its data object"))
        # The checksums first: an index that they do not fit is found, and made anew by the next call.
        companion = checksums_with_index(self._tier, judged.pair, judged.index)
        if companion is not None and not self._has(key.block_checksums_key, companion):
            said = self._tier.stat(key.block_checksums_key).user_metadata
            keep_copy(self._tier, key.block_checksums_key, reason, self._audit, self._now_ms())
            self._audit.record(
                _write(judged, key.block_checksums_key, "checksums with that of the index made anew")
            )
            self._tier.write_index(key.block_checksums_key, companion, user_metadata=said)
        if checksums is not None:
            self._tier.write_index(checksums[1], made)
        self._tier.write_index(key.index_key, judged.index, user_metadata=judged.index_metadata or {})
        return (key.index_key,)

    def _has(self, key: str, data: bytes) -> bool:
        """Return whether these bytes are under a key already."""
        try:
            size = self._tier.stat(key).size_bytes
        except ObjectNotFoundError:
            return False
        return size == len(data) and bytes(self._tier.read_range(key, 0, size)) == data

    def write_checksums(self, judged: Judged) -> tuple[str, ...]:
        """The `.crc` file of a MapFile's data, made anew."""
        checksums, data = judged.key.checksum_keys, judged.pair.data
        assert checksums is not None
        assert data is not None
        keep_copy(self._tier, checksums[0], _reason(judged), self._audit, self._now_ms())
        self._audit.record(_write(judged, checksums[0], "checksums made anew from the data file"))
        whole = self._tier.read_range(judged.key.data_key, 0, data.size_bytes)
        self._tier.write_index(checksums[0], make_checksums(whole))
        return (checksums[0],)

    def write_salvaged(self, judged: Judged) -> tuple[str, ...]:
        """Return what a damaged object still holds, as a new pair; nothing if that is there."""
        salvage = judged.salvage
        assert salvage is not None
        target = salvage.target
        if is_whole(self._tier, salvage):
            return ()
        self._audit.record(
            _write(judged, target.data_key, f"{judged.entries} entries of {judged.key.data_key}")
        )
        salvage.write(self._tier)
        if not is_whole(self._tier, salvage):
            raise DataLossError(
                "what was saved of an object is not what it holds; the object was not touched",
                key=target.data_key,
            )
        return (target.data_key, target.index_key)

    def put_aside(self, judged: Judged) -> tuple[str, ...]:
        """All objects of the pair go to the quarantine."""
        return self._put_aside(judged.key, _reason(judged))

    def put_pair_aside(
        self, key: ObjectKey, findings: Sequence[Finding], why: str, new: ObjectKey | None = None
    ) -> tuple[str, ...]:
        """The same of a pair, whatever there is of it, that another one took the place of."""
        replaced_by = None if new is None else new.data_key
        codes = tuple(sorted({each.code.value for each in findings}))
        reason = Reason(codes=codes, why=why, replaced_by=replaced_by, ledger_id=key.ledger_id)
        return self._put_aside(key, reason)

    def _put_aside(self, key: ObjectKey, reason: Reason) -> tuple[str, ...]:
        keys = [key.data_key, key.index_key, *key.companion_keys]  # an index alone is put aside as well
        return tuple(move(self._tier, keys, reason, self._audit, self._now_ms()))


def _reason(judged: Judged) -> Reason:
    return Reason(
        codes=tuple(sorted(code.value for code in judged.codes)),
        why=judged.choice.why,
        replaced_by=None if judged.replacement is None else judged.replacement.data_key,
        managed_ledger=judged.key.managed_ledger or (judged.known.managed_ledger if judged.known else None),
        ledger_id=judged.key.ledger_id,
    )


def _write(judged: Judged, key: str, after: str) -> Change:
    reason = _reason(judged)
    return Change(
        action=ChangeAction.WRITE,
        why=f"{judged.choice.why}: {', '.join(reason.codes)}",
        managed_ledger=reason.managed_ledger,
        ledger_id=reason.ledger_id,
        uuid=judged.key.uuid,
        key=key,
        after=after,
    )


def replacement_for(
    records: ManagedLedgerRecords,
    known: RecordedAttempt,
    old: ObjectKey,
    new: ObjectKey,
    tier: Tier,
    audit: AuditLog,
    now_ms: Callable[[], int],
) -> Replacement:
    """Return what takes the place of a damaged copy, in a record that can name it (`can_name`)."""
    assert known.driver is not None
    is_segment = new.object_format is ObjectFormat.STREAMING
    copy = OtherCopy(
        role=OtherRole.REPLACEMENT,
        uuid=new.uuid,
        form=CopyForm.SEGMENT if is_segment else CopyForm.LEDGER,
        driver=place_of(known.driver),
        since_ms=now_ms(),
        segment=old.uuid if is_segment else None,
        ledger_ids=tuple(sorted(known.infos)),
    )
    return Replacement(
        records=records,
        name=known.managed_ledger,
        copy=copy,
        old=old.uuid,
        tier=tier,
        audit=audit,
        why="its copy is damaged",
        now_ms=now_ms,
    )


def can_name(records: ManagedLedgerRecords, known: RecordedAttempt, old: ObjectKey, new: ObjectKey) -> bool:
    """Return whether a record that reads one copy can read the other: it says of it no more than its uuid and its tier.

    Not so one that was replaced, which is to be deleted.

    Raises:
        StoreError, MetadataError: of the records.
    """
    if known.driver is None or old.is_mapfile or new.is_mapfile or new.folder:
        return False
    found = records.read(known.managed_ledger)
    others = () if found is None else other_copies(found.info)
    return all(each.uuid != new.uuid or each.role is OtherRole.REPLACEMENT for each in others)


def pulsars_bits(uuid: UUID) -> tuple[int, int]:
    """A uuid as Pulsar's records have it: its most and least bits, signed."""
    most, least = divmod(uuid.int, 1 << 64)
    return most - (most >> 63 << 64), least - (least >> 63 << 64)
