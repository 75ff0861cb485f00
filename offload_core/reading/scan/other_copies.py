"""Read the hot copy of a ledger, and find another copy where one cannot be read.

A copy may go between planning and reading: a broker deletes a hot one once it is offloaded, and a bucket may lose an
object. Then the ledger's record is read again, which names the copies of now. Source: docs/live-clusters.md.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace

from offload_core.format.codec.extent import LedgerExtent
from offload_core.metadata.catalogue import TopicName, open_records, record_catalogue
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import ReadPriority
from offload_core.reading.read_fallbacks import Copy, Fallback, ReadFallbacks, reason_of
from offload_core.reading.scan.extents import least, read_ledger
from offload_core.reading.scan.select import namespaces_of_names
from offload_core.reading.scan.tasks import ScanExtent
from offload_core.storage.tier import Tier
from offload_hooks.errors import OffloadError
from offload_hooks.ledger_stores import EntryBatch, FollowedLedgerReader

_FALLBACKS = ReadFallbacks()


def read_hot(tier: Tier, extent: LedgerExtent, first_entry_id: int) -> Generator[EntryBatch, None, None]:
    """The entries of a hot copy from one on, up to the extent's end. Close it when not read to the end.

    Raises:
        UnknownLedgerError: the copy is gone.
        FormatError, StoreError: as `LedgerReader.read`.
    """
    if tier.hot is None:
        raise AssertionError("a hot copy is read by a tier with a hot one")
    stop = _stop_of(extent)
    if stop is None:
        raise AssertionError("the end of a hot copy is known")
    with closing(tier.hot.open(extent.ledger_id)) as reader:
        if isinstance(reader, FollowedLedgerReader):
            reader.accept(stop)
        while first_entry_id < stop:
            batch = reader.read(first_entry_id, stop - 1)
            yield batch
            first_entry_id = batch.stop_entry_id


def other_copy(
    tier: Tier, extent: LedgerExtent, first_entry_id: int, error: OffloadError
) -> Sequence[LedgerExtent]:
    """What the other copy of an extent's ledger has of its entries from one on; where it is, the record says anew.

    Raises:
        OffloadError: there is none, or none may be read: `error`, by which this one cannot be read.
        StoreError, FormatError: of the records, or the other copy.
    """
    topic, reason = _topic_of(extent), reason_of(error)
    hot = tier.hot
    if hot is None or hot.spec.records is None or topic is None or reason is None:
        raise error
    place = hot.spec.records
    with open_records(place.source, tier, place.tier_options, place.options) as records:
        priority = records.read_priority(topic) if place.has_priorities else None
        if priority is not None and not priority.falls_back:
            raise error
        records.topics(namespaces_of_names((topic.full,)))  # which makes its name known
        info = records.read([topic]).get(topic)
    found = () if info is None else tuple(each for each in info.ledgers if each.ledger_id == extent.ledger_id)
    if info is None or not found:
        raise error
    catalogue = record_catalogue(
        tier,
        {topic: replace(info, ledgers=found)},
        prefix=place.folder,
        priorities={topic: ReadPriority.OFFLOADED_ONLY if extent.hot else ReadPriority.BOOKKEEPER_ONLY},
    )
    ledger = read_ledger(tier, catalogue.topics[0].ledgers[0])
    parts = (each.between(first_entry_id, _stop_of(extent)) for each in ledger.extents)
    others = [part for part in parts if part is not None]
    if not others:
        raise error
    _FALLBACKS.report(
        Fallback(
            ledger_id=extent.ledger_id,
            copy=Copy.HOT if extent.hot else Copy.COLD,
            reason=reason,
            entry_id=first_entry_id,
            error=error,
        )
    )
    return others


def without_others(tier: Tier) -> Tier:
    """The tier, where no other copy is looked for."""
    return tier if tier.hot is None else tier.with_hot(tier.hot.with_records(None))


def _stop_of(extent: LedgerExtent) -> int | None:
    """Where an extent ends, which may have some of its ledger's blocks; None if that is not known."""
    return least(extent.stop_entry_id, extent.blocks[-1].end_entry_id if extent.blocks else None)


def _topic_of(extent: LedgerExtent) -> TopicName | None:
    if extent.hot is not None:
        return topic_of_managed_ledger(extent.hot.managed_ledger)
    topic = extent.topic if isinstance(extent, ScanExtent) else None
    return None if topic is None else TopicName(topic)
