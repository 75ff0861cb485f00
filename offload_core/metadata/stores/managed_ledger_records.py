"""Managed ledgers' records in a metadata store: read with their version, changed and claimed.

Every change is a compare-and-set of Pulsar's record at Pulsar's path; unknown fields are kept. Records of older
versions in another form are read, and corrected by the next write (`as_written`). A write whose outcome the store does
not know is resolved by reading back (`resolved_writes`).

A record is claimed while its objects are deleted, or a lost record is rebuilt. A claim fails if the record has changed
since objects were judged by it. An existing record is written once more, unchanged. Without a record, a placeholder is
created, which has no ledgers, only the property `pulsar-offload.claim` (ms since 1970, UTC); it is deleted in the end.
Other writers may overwrite it: then the next compare-and-set of its creator fails. Source: docs/adr/0052-claims.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from offload_core.format.messages.compression import Compression
from offload_core.metadata.records.managed_ledger_info import ManagedLedgerInfo, SegmentLayout
from offload_core.metadata.records.segments import as_written
from offload_core.metadata.records.stored_record import StoredRecord, pack_stored_record, parse_stored_record
from offload_core.metadata.stores.record_paths import list_names, record_path
from offload_core.metadata.stores.resolved_writes import delete_resolved, put_resolved, until_first
from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.errors import UnknownTopicError, VersionConflictError, placed
from offload_hooks.metadata_stores import WritableMetadataStore

Change = Callable[[ManagedLedgerInfo], ManagedLedgerInfo]

MOST_KNOWN_LEDGERS = 20_000
"""Ledgers of records that were read or written last are kept, so that only what changed is parsed: some 30 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedInfo:
    """A managed ledger's record as it was read or written, with its version there, and its compression."""

    info: ManagedLedgerInfo
    version: int
    compression: Compression = Compression.NONE


class ManagedLedgerRecords:
    """The records of a metadata store, by the names of managed ledgers: `tenant/namespace/persistent/encoded topic`.

    Calls may come from many threads at once. All raise the store's errors, with the path, and a `FormatError` for a
    record that cannot be parsed.

    Attributes:
        store: it is not closed.

    Args:
        store: where they are kept.
        compression: of records that are written, as Pulsar's `managedLedgerInfoCompressionType`; None: as each was
            before. All are read.
        segment_layout: see `pack_managed_ledger_info`.
    """

    def __init__(
        self,
        store: WritableMetadataStore,
        *,
        compression: Compression | None = Compression.NONE,
        segment_layout: SegmentLayout = SegmentLayout.SHIPPED,
    ) -> None:
        self.store = store
        self._compression = compression
        self._segment_layout = segment_layout
        # of a record of many ledgers few change from one read to the next
        self._known = BoundedCache[str, ManagedLedgerInfo](
            MOST_KNOWN_LEDGERS, size_of=lambda info: len(info.ledgers)
        )

    def names(self, namespaces: Collection[str] | None = None) -> list[str]:
        """The managed ledgers of these namespaces (`tenant/namespace`), or of all, in no order."""
        return list_names(self.store, namespaces)

    def read(self, name: str) -> VersionedInfo | None:
        """A record; None if there is none."""
        path = record_path(name)
        found = self.store.get(path)
        if found is None:
            return None
        parsed = _parsed(path, *found, self._known.get(path))
        self._known.put(path, parsed.info)
        return parsed

    def require(self, name: str) -> VersionedInfo:
        """A record; `UnknownTopicError` if there is none."""
        found = self.read(name)
        if found is None:
            raise no_record(name)
        return found

    def write(self, name: str, info: ManagedLedgerInfo, expected: VersionedInfo | None) -> VersionedInfo:
        """Store a record in place of `expected`; None: there is none yet.

        If the store loses an answer, two writers of the same bytes may both succeed. So a record that must have one
        writer names it, as an attempt its uuid.

        Raises:
            VersionConflictError: there is another record, or none. After a lost answer it may be one that was written
                over this one.
            OutcomeUnknownError: the record could not be read back either, or changed all the time.
            OptionError: see `pack_managed_ledger_info`.
        """
        info = as_written(info)
        compression = self._compression
        if compression is None:
            compression = Compression.NONE if expected is None else expected.compression
        data = pack_stored_record(
            StoredRecord(info=info, compression=compression), segment_layout=self._segment_layout
        )
        path, version = record_path(name), None if expected is None else expected.version
        written = put_resolved(self.store, path, data, version)
        self._known.put(path, info)
        return VersionedInfo(info=info, version=written, compression=compression)

    def update(self, name: str, change: Change) -> VersionedInfo:
        """Change a record, also while others change it; return the new one.

        Args:
            name: of the managed ledger.
            change: returns the new record for a known one; it is called again for each that another process wrote in
                between. It has no effects, and does not change its own result. It may raise; then nothing is written.
                Nothing is written either if it changes nothing, and the record has today's form.

        Raises:
            UnknownTopicError: there is no record of this managed ledger.
            VersionConflictError: another process was faster every time.
            OutcomeUnknownError: see `write`.
        """

        def turn() -> VersionedInfo:
            known = self.require(name)
            changed = as_written(change(known.info))
            return known if changed == known.info else self.write(name, changed, known)

        return until_first(turn)

    def delete(self, name: str, expected: VersionedInfo) -> None:
        """Delete a record that is as it was read.

        Raises:
            VersionConflictError: there is another record, or none.
            OutcomeUnknownError: see `write`.
        """
        delete_resolved(self.store, record_path(name), expected.version)


def _parsed(path: str, value: bytes, version: int, before: ManagedLedgerInfo | None = None) -> VersionedInfo:
    with placed(key=path):
        record = parse_stored_record(value, before)
    return VersionedInfo(info=record.info, version=version, compression=record.compression)


def no_record(name: str) -> UnknownTopicError:
    """The error for a record that does not exist."""
    return UnknownTopicError("there is no record of this managed ledger", key=record_path(name))


CLAIM_PROPERTY = "pulsar-offload.claim"


def is_claim(info: ManagedLedgerInfo) -> bool:
    """Return whether a record is a placeholder of a claim."""
    names = [name for name, _ in info.properties]
    return not info.ledgers and info.terminated_at is None and names == [CLAIM_PROPERTY]


def placeholder(now_ms: int) -> ManagedLedgerInfo:
    """The placeholder of a claim (ms since 1970, UTC)."""
    return ManagedLedgerInfo(properties=((CLAIM_PROPERTY, str(now_ms)),))


@contextmanager
def claimed(
    records: ManagedLedgerRecords, name: str, judged: ManagedLedgerInfo | None, now_ms: int
) -> Iterator[bool]:
    """Claim a deletion for a block; return whether the record is still the one that objects were judged by.

    Args:
        name: the managed ledger's.
        judged: the record that objects were judged by; None if there was none.

    Raises:
        VersionConflictError: other processes wrote the record every time.
        StoreError, FormatError: of the metadata.
    """
    path = record_path(name)
    ours: list[VersionedInfo] = []

    def turn() -> bool:
        found = records.store.get(path)
        known = None if found is None else _parsed(path, *found)
        has_none = known is None or is_claim(known.info)
        if (None if known is None or has_none else known.info) != judged:
            return False
        if found is None or has_none:
            ours.append(records.write(name, placeholder(now_ms), known))
        else:
            put_resolved(records.store, path, *found)
        return True

    is_as_judged = until_first(turn)
    try:
        yield is_as_judged
    finally:
        for each in ours:
            with suppress(VersionConflictError):  # a record took its place
                records.delete(name, each)


def release_claim(records: ManagedLedgerRecords, name: str, before_ms: int) -> bool:
    """Delete a placeholder from before this time (ms since 1970, UTC); return whether there was one.

    Raises:
        StoreError, FormatError: of the metadata.
    """
    known = records.read(name)
    if known is None or not is_claim(known.info):
        return False
    ((_, since),) = known.info.properties
    if not since.isdecimal() or int(since) > before_ms:
        return False
    with suppress(VersionConflictError):
        records.delete(name, known)
    return True
