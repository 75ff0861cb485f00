"""The copies that a topic's record names for its ledgers, and where each must be: a record says uuids, not keys.

Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from offload_core.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import CopyForm, DriverMetadata, LedgerRecord, OtherCopy, SegmentStatus

MAPFILE_DRIVER = "filesystem"
"""Pulsar's driver that stores MapFiles."""

_UNFINISHED = {
    SegmentStatus.ASSIGNED: "by its record this segment is not offloaded yet",
    SegmentStatus.FAILED: "by its record the offload of this segment failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCopy:
    """An attempt that a ledger's record names.

    Attributes:
        topic: whose record names it.
        key: where its data object must be.
        begin_entry_id: the first entry that no segment before it has.
        stop_entry_id: one past its last entry; None if the record does not say, or for a copy that is one object.
        unfinished: why it must not be read, in words; None if it is complete.
        mapfile_key: where it is if it is a MapFile, for a record that names no driver.
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
    """The attempts that a topic's record names for a ledger, in its order; `folder` is what their keys begin with."""
    context = record.context
    if context is None:
        return
    begin = 0
    for segment in context.segments:
        stop = None if segment.end_entry_id is None else segment.end_entry_id + 1
        yield RecordedCopy(
            topic=topic,
            ledger_id=record.ledger_id,
            key=ObjectKey(folder=folder, uuid=segment.uuid, ledger_id=None, is_index=False),
            begin_entry_id=begin,
            stop_entry_id=stop,
            unfinished=_UNFINISHED.get(segment.status),
            driver=segment.driver or context.driver,
        )
        begin = max(begin, stop or 0)
    if context.uuid is not None and not context.segments:
        driver = context.driver
        object_key = ObjectKey(
            folder=folder, uuid=context.uuid, ledger_id=record.ledger_id, is_index=False, is_mapfile=False
        )
        mapfile_key = replace(
            object_key, folder=f"{folder}{managed_ledger_of_topic(topic)}/", is_mapfile=True
        )
        yield RecordedCopy(
            topic=topic,
            ledger_id=record.ledger_id,
            key=mapfile_key if driver is not None and driver.name == MAPFILE_DRIVER else object_key,
            begin_entry_id=0,
            stop_entry_id=None,
            unfinished=None if context.complete else "by its record this attempt did not finish",
            driver=driver,
            mapfile_key=mapfile_key if driver is None else None,
        )


def other_copy_key(topic: TopicName, copy: OtherCopy) -> ObjectKey:
    """Where the data object is of a copy that a topic's record names beside those that are read."""
    is_mapfile = copy.form is CopyForm.LEDGER and copy.driver.name == MAPFILE_DRIVER
    return ObjectKey(
        folder=f"{managed_ledger_of_topic(topic)}/" if is_mapfile else "",
        uuid=copy.uuid,
        ledger_id=copy.ledger_ids[0] if copy.form is CopyForm.LEDGER else None,
        is_index=False,
        is_mapfile=is_mapfile,
    )
