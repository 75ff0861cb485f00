"""The copies that a topic's record names: their keys, and which entries they have. Source: docs/formats/metadata.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import (
    AttemptStatus,
    CopyForm,
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    ledger_copy_key,
)
from offload_core.metadata.records.offload_context import FILTER_PROPERTY

_UNFINISHED = {
    AttemptStatus.ASSIGNED: "by its record this segment is not offloaded yet",
    AttemptStatus.FAILED: "by its record the offload of this segment failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCopy:
    """An attempt that a ledger's record names.

    Attributes:
        key: of its data object.
        begin_entry_id: the first entry that no segment before it has.
        stop_entry_id: one past its last entry; None if it is not recorded, or for a copy that is one object.
        unfinished: the reason why it must not be read; None if it is complete.
        mapfile_key: the key if it is a MapFile, for a record that names no driver.
    """

    topic: TopicName
    ledger_id: int
    key: ObjectKey
    begin_entry_id: int
    stop_entry_id: int | None
    unfinished: str | None
    driver: DriverMetadata | None
    mapfile_key: ObjectKey | None = None


def recorded_copies(topic: TopicName, record: LedgerRecord, folder: str = "") -> Iterator[RecordedCopy]:
    """The attempts that a topic's record names for a ledger, in its order; their keys begin with `folder`."""
    begin = 0
    for copy in record.copies:
        driver = copy.driver
        if copy.segment is not None:
            yield RecordedCopy(
                topic=topic,
                ledger_id=record.ledger_id,
                key=ObjectKey(folder=folder, uuid=copy.uuid, ledger_id=None, is_index=False),
                begin_entry_id=begin,
                stop_entry_id=copy.stop_entry_id,
                unfinished=_UNFINISHED.get(copy.segment.status),
                driver=driver,
            )
            begin = max(begin, copy.stop_entry_id or 0)
            continue
        name = managed_ledger_of_topic(topic)
        key = ledger_copy_key(name, record.ledger_id, copy.uuid, driver)
        mapfile_key = ObjectKey.of_mapfile(folder + name, record.ledger_id, copy.uuid)
        yield RecordedCopy(
            topic=topic,
            ledger_id=record.ledger_id,
            key=replace(key, folder=folder + key.folder),
            begin_entry_id=0,
            stop_entry_id=None,
            unfinished=None if copy.complete else "by its record this attempt did not finish",
            driver=driver,
            mapfile_key=mapfile_key if driver is None else None,
        )


def other_copy_key(topic: TopicName, copy: OtherCopy) -> ObjectKey:
    """The key of the data object of a copy that a topic's record names beside those that are read."""
    if copy.form is CopyForm.SEGMENT:
        return ObjectKey(folder="", uuid=copy.uuid, ledger_id=None, is_index=False)
    return ledger_copy_key(managed_ledger_of_topic(topic), copy.ledger_ids[0], copy.uuid, copy.driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRange:
    """Consecutive entries of one ledger that lie in the same places.

    Attributes:
        end_entry_id: the last one; None if that is not known of a ledger that is written.
        key: of their data object; None if they are hot only.
        is_complete: whether that may be read; else it is being written, or its attempt failed.
        is_hot: whether the hot tier has them too.
        filter_record: the record of the filter that the object went through; None if none ran.
        is_written: whether the ledger is written, and has more entries after these ones soon.
    """

    ledger_id: int
    first_entry_id: int
    end_entry_id: int | None
    key: ObjectKey | None
    is_complete: bool
    is_hot: bool
    filter_record: str | None = None
    is_written: bool = False

    @property
    def entries(self) -> int | None:
        """The number of entries; None if `end_entry_id` is."""
        return None if self.end_entry_id is None else self.end_entry_id + 1 - self.first_entry_id


def layout_of(
    topic: TopicName, info: ManagedLedgerInfo, written: Mapping[int, int] = MappingProxyType({})
) -> list[RecordedRange]:
    """All entries of a topic, in their order; without ledgers that are empty or marked for deletion.

    Args:
        written: the entries that open ledgers have now, as far as that is known.
    """
    return [
        each
        for ledger in info.in_order
        if not ledger.is_marked_for_deletion
        for each in _ranges(ledger, list(recorded_copies(topic, ledger)), written.get(ledger.ledger_id))
    ]


def _ranges(ledger: LedgerRecord, copies: list[RecordedCopy], written: int | None) -> Iterator[RecordedRange]:
    stop = ledger.info.entries if ledger.info.is_closed else written
    is_hot = ledger.has_hot_copy
    first = 0
    for copy in copies:
        is_segment = copy.key.ledger_id is None
        copy_stop = copy.stop_entry_id if is_segment else stop
        if copy_stop is None:
            copy_stop = stop  # a segment under way: it may end before
        if copy_stop is None or copy_stop > first:
            yield _range(ledger, first, copy_stop, copy, is_hot=is_hot)
        if copy_stop is None:
            return
        first = copy_stop
    if stop is None or first < stop:
        yield _range(ledger, first, stop, None, is_hot=is_hot)


def _range(
    ledger: LedgerRecord, first: int, stop: int | None, copy: RecordedCopy | None, *, is_hot: bool
) -> RecordedRange:
    return RecordedRange(
        ledger_id=ledger.ledger_id,
        first_entry_id=first,
        end_entry_id=None if stop is None else stop - 1,
        key=None if copy is None else copy.key,
        is_complete=copy is not None and copy.unfinished is None,
        is_hot=is_hot,
        filter_record=None if copy is None or copy.driver is None else copy.driver.get(FILTER_PROPERTY),
        is_written=copy is None and not ledger.info.is_closed,
    )
