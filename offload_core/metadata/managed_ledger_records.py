"""Managed ledgers' records in a metadata store that is ours: read with their version, changed by compare-and-set.

What is written is Pulsar's record at Pulsar's path; fields that are not known here are kept. What older versions wrote
in another form is read, and put right by the next write (`as_written`). A write whose outcome the store does not know
is resolved by reading back (`resolved_writes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from offload_core.messages.compression import Compression
from offload_core.metadata.managed_ledger_info import ManagedLedgerInfo
from offload_core.metadata.record_paths import list_names, read_record, record_path
from offload_core.metadata.resolved_writes import delete_resolved, put_resolved, until_first
from offload_core.metadata.segment_layout import SegmentLayout
from offload_core.metadata.segment_shares import as_written
from offload_core.metadata.stored_record import StoredRecord, pack_stored_record
from offload_hooks.errors import UnknownTopicError
from offload_hooks.metadata_stores import WritableMetadataStore

Change = Callable[[ManagedLedgerInfo], ManagedLedgerInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedInfo:
    """A managed ledger's record as it was read or written, with its version there."""

    info: ManagedLedgerInfo
    version: int


class ManagedLedgerRecords:
    """The records of a metadata store, by the names of managed ledgers: `tenant/namespace/persistent/encoded topic`.

    Calls may come from many threads at once. All raise the store's errors, with the path; of a record that cannot be
    parsed a `FormatError`.

    Attributes:
        store: where they are; it is not closed.

    Args:
        compression: how records are stored, as Pulsar's `managedLedgerInfoCompressionType`; all are read.
        segment_layout: see `pack_managed_ledger_info`.
    """

    def __init__(
        self,
        store: WritableMetadataStore,
        *,
        compression: Compression = Compression.NONE,
        segment_layout: SegmentLayout = SegmentLayout.SHIPPED,
    ) -> None:
        self.store = store
        self._compression = compression
        self._segment_layout = segment_layout

    def names(self, namespaces: Collection[str] | None = None) -> list[str]:
        """The managed ledgers of these namespaces (`tenant/namespace`), or of all, in no order."""
        return list_names(self.store, namespaces)

    def read(self, name: str) -> VersionedInfo | None:
        """A record; None if there is none."""
        found = read_record(self.store, name)
        return None if found is None else VersionedInfo(info=found[0], version=found[1])

    def write(self, name: str, info: ManagedLedgerInfo, expected: VersionedInfo | None) -> VersionedInfo:
        """Store a record in place of `expected`; None: there is none yet.

        Of two writers of the same bytes both may be told that they wrote, if the store loses an answer. So what must
        have one writer has its name in it, as an attempt has its uuid.

        Raises:
            VersionConflictError: another record is there, or none. After an answer that was lost it may be one that
                was written upon this one.
            OutcomeUnknownError: and the record could not be read back, or never came to rest.
            OptionError: see `pack_managed_ledger_info`.
        """
        info = as_written(info)
        record = StoredRecord(info=info, compression=self._compression)
        data = pack_stored_record(record, segment_layout=self._segment_layout)
        version = None if expected is None else expected.version
        return VersionedInfo(info=info, version=put_resolved(self.store, record_path(name), data, version))

    def update(self, name: str, change: Change) -> VersionedInfo:
        """Change a record, however many others change it at the same time; the record as it is then.

        Args:
            change: gives the new record for one that was read; it is called again for each that somebody else wrote in
                between. It has no effects, and to its own result it does nothing. It may raise; then nothing is
                written. Nothing is written either where it changes nothing, and the record has today's form.

        Raises:
            UnknownTopicError: there is no record of this managed ledger.
            VersionConflictError: somebody else was faster every time.
            OutcomeUnknownError: see `write`.
        """

        def turn() -> VersionedInfo:
            known = self.read(name)
            if known is None:
                raise UnknownTopicError("there is no record of this managed ledger", key=record_path(name))
            changed = as_written(change(known.info))
            return known if changed == known.info else self.write(name, changed, known)

        return until_first(turn)

    def delete(self, name: str, expected: VersionedInfo) -> None:
        """Delete a record that is as it was read.

        Raises:
            VersionConflictError: another record is there, or none.
            OutcomeUnknownError: see `write`.
        """
        delete_resolved(self.store, record_path(name), expected.version)
