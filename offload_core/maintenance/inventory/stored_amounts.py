"""StoredAmount objects by topic and month: counted from a listing or from records, and each object's index.

Memory grows with topics and months, not with objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial

from offload_core.format.codec.mapfile.crc_files import CHECKSUM_BYTES, CHUNK_BYTES, HEAD_BYTES
from offload_core.maintenance.inventory.prices import StorageClass
from offload_core.metadata.catalogue import UNKNOWN_TOPIC, Records, StoredObject, record_catalogue
from offload_core.metadata.catalogue.concurrency import in_batches, inspect_batches
from offload_core.metadata.catalogue.listing import Pair, describe_pair, stream_pairs
from offload_core.metadata.catalogue.record_source import in_parts
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.storage.tier import Tier

_DAY = timedelta(days=1)


@dataclass(slots=True, kw_only=True)
class StoredAmount:
    """Objects of a topic that were stored in a month, or of several together.

    Attributes:
        copies: data objects with their indexes; `mapfiles` those of them that were not written as uploads of parts.
        objects: all objects, files of checksums as well.
        data_bytes: of data objects; `other_bytes` of the rest.
        parts: of the uploads: their blocks. An object whose index cannot be read counts as one.
        padding: by a class's least size of an object, the bytes that all smaller ones lack.
        early_byte_days: by a class's least days, how many bytes would be paid for how long if all were deleted now.
    """

    copies: int = 0
    mapfiles: int = 0
    objects: int = 0
    data_bytes: int = 0
    other_bytes: int = 0
    parts: int = 0
    padding: dict[int, int] = field(default_factory=dict)
    early_byte_days: dict[int, float] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        """All bytes."""
        return self.data_bytes + self.other_bytes

    def add(self, other: StoredAmount) -> None:
        """Add the other's."""
        self.copies += other.copies
        self.mapfiles += other.mapfiles
        self.objects += other.objects
        self.data_bytes += other.data_bytes
        self.other_bytes += other.other_bytes
        self.parts += other.parts
        for size, lacking in other.padding.items():
            self.padding[size] = self.padding.get(size, 0) + lacking
        for days, unpaid in other.early_byte_days.items():
            self.early_byte_days[days] = self.early_byte_days.get(days, 0.0) + unpaid


_Place = tuple[str, str, str]
StoredBy = dict[_Place, StoredAmount]
"""By topic, month of the offload (`2026-11`), in UTC, and the store's word for the storage class, empty without one."""


def survey_stored(
    tier: Tier,
    *,
    classes: Collection[StorageClass] = (),
    prefix: str = "",
    records: Callable[[], AbstractContextManager[Records]] | None = None,
    topics: Collection[str] = (),
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    listener: Callable[[int], None] = lambda _: None,
) -> StoredBy:
    """Add up all stored objects, or those that records name.

    Args:
        tier: where objects are listed.
        classes: whose least sizes and days count.
        prefix: only objects whose keys begin so; with `records` the folder that they lie in.
        records: opens managed ledgers' records; None to count all objects.
        topics: only these, by their full names or those of the partitioned topic; none for all.
        now: the time that ages are counted to.
        listener: called with the number of copies that are measured.

    Raises:
        StoreError: the store fails. FormatError: of records.
    """
    found: StoredBy = {}
    measure = _Measure(tuple(classes), tuple(topics), now())
    if records is None:
        pairs = in_batches(stream_pairs(tier, prefix))
        looks = inspect_batches(pairs, partial(_look, tier, measure))
        measured = (each for _, some in looks for each in some if each is not None)
    else:
        measured = (measure(topic, stored) for topic, stored in _recorded(tier, prefix, records))
    for seen, (key, stored) in enumerate(measured, 1):
        listener(seen)
        if stored is not None:
            found.setdefault(key, StoredAmount()).add(stored)
    return dict(sorted(found.items()))


def by_topic(found: StoredBy) -> dict[str, StoredAmount]:
    """The months and storage classes of each topic together."""
    topics: dict[str, StoredAmount] = {}
    for (topic, _, _), stored in found.items():
        topics.setdefault(topic, StoredAmount()).add(stored)
    return topics


def by_class(found: StoredBy) -> dict[str, dict[str, StoredAmount]]:
    """The months of each topic together, by storage class."""
    classes: dict[str, dict[str, StoredAmount]] = {}
    for (topic, _, storage_class), stored in found.items():
        classes.setdefault(storage_class, {}).setdefault(topic, StoredAmount()).add(stored)
    return classes


@dataclass(frozen=True, slots=True)
class _Measure:
    classes: tuple[StorageClass, ...]
    topics: tuple[str, ...]
    now: datetime

    def __call__(self, topic: str, stored: StoredObject) -> tuple[_Place, StoredAmount | None]:
        """Return where it counts, and what; None if its topic is not asked for."""
        month = "" if stored.modified_at is None else f"{stored.modified_at.astimezone(timezone.utc):%Y-%m}"
        place = (topic, month, stored.storage_class or "")
        if self.topics and not any(
            topic == each or topic.startswith(f"{each}-partition-") for each in self.topics
        ):
            return place, None
        return place, _measured(stored, self.classes, self.now)


def _look(tier: Tier, measure: _Measure, pair: Pair) -> tuple[_Place, StoredAmount | None] | None:
    stored = describe_pair(tier, pair)
    if stored is None:
        return None
    named = stored.managed_ledger
    return measure(UNKNOWN_TOPIC if named is None else str(topic_of_managed_ledger(named)), stored)


def _measured(stored: StoredObject, classes: Iterable[StorageClass], now: datetime) -> StoredAmount:
    sizes = [size for size in (stored.data_bytes, stored.index_bytes, stored.index_checksum_bytes) if size]
    if stored.checksum_key is not None:
        sizes.append(HEAD_BYTES + -(-(stored.data_bytes or 0) // CHUNK_BYTES) * CHECKSUM_BYTES)
    parts = 1
    if stored.index is not None and not stored.key.is_mapfile:
        parts = sum(ledger.block_count for ledger in stored.index.ledgers)
    days = 0.0 if stored.modified_at is None else (now - stored.modified_at) / _DAY
    least_sizes = {each.minimum_object_bytes for each in classes} - {0}
    least_days = {each.minimum_days for each in classes} - {0}
    return StoredAmount(
        copies=1,
        mapfiles=int(stored.key.is_mapfile),
        objects=len(sizes),
        data_bytes=stored.data_bytes or 0,
        other_bytes=sum(sizes) - (stored.data_bytes or 0),
        parts=parts,
        padding={least: sum(max(0, least - size) for size in sizes) for least in least_sizes},
        early_byte_days={least: max(0.0, least - days) * sum(sizes) for least in least_days},
    )


def _recorded(
    tier: Tier, prefix: str, opened: Callable[[], AbstractContextManager[Records]]
) -> Iterator[tuple[str, StoredObject]]:
    with opened() as records:
        for part in in_parts(records.topics()):
            for topic in record_catalogue(tier, records.read(part), prefix=prefix).topics:
                copies: Mapping[str, StoredObject] = {
                    stored.key.data_key: stored for ledger in topic.ledgers for stored in ledger.attempts
                }
                for stored in copies.values():
                    if stored.data_bytes is not None or stored.index_bytes is not None:
                        yield topic.label, stored
