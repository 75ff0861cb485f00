"""Bytes in a tier by owner or kind, from one listing.

Format, age and storage class are in the listing. The owner of an object is in its user metadata, which is a request for
each pair, many at once; or in managed ledgers' records, which name it by its UUID. A MapFile has it in its key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from offload_core.format.codec.object_format import TOPIC_KEY
from offload_core.metadata.catalogue import UNKNOWN_TOPIC, Records, TopicName, recorded_copies
from offload_core.metadata.catalogue.concurrency import in_batches, inspect_batches
from offload_core.metadata.catalogue.listing import Pair, pair_up
from offload_core.metadata.catalogue.record_source import in_parts
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError
from offload_hooks.values import ListedObject

OTHER = "(other objects)"
"""Objects that no offloader wrote."""

UNKNOWN_CLASS = "(not said)"
_DOMAIN = "persistent://"
_AGES = (
    (1, "under 1 day"),
    (7, "under 7 days"),
    (30, "under 30 days"),
    (90, "under 90 days"),
    (365, "under 1 year"),
)


class By(enum.Enum):
    """Grouping of bytes."""

    PLACE = "place"
    """Tenant, namespace and topic."""
    FORMAT = "format"
    AGE = "age"
    STORAGE_CLASS = "storage-class"


Path = tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Usage:
    """Bytes and objects, by path: `(tenant, namespace, topic)`, or a format, an age or a storage class."""

    size_bytes: dict[Path, int] = field(default_factory=dict)
    objects: dict[Path, int] = field(default_factory=dict)

    def add(self, path: Path, size_bytes: int, objects: int = 1) -> None:
        """Count in, for the path and all above it; the empty path is the total."""
        for depth in range(len(path) + 1):
            above = path[:depth]
            self.size_bytes[above] = self.size_bytes.get(above, 0) + size_bytes
            self.objects[above] = self.objects.get(above, 0) + objects

    def lines(self, depth: int | None = None) -> Iterator[tuple[Path, int, int]]:
        """Path, bytes and objects, what is in a path before the path itself, to this depth; the total last."""
        yield from self._below((), self._children(), depth)

    def _children(self) -> dict[Path, list[Path]]:
        children: dict[Path, list[Path]] = {}
        for path in sorted(self.size_bytes):
            if path:
                children.setdefault(path[:-1], []).append(path)
        return children

    def _below(
        self, path: Path, children: Mapping[Path, list[Path]], depth: int | None
    ) -> Iterator[tuple[Path, int, int]]:
        if depth is None or len(path) < depth:
            for child in children.get(path, ()):
                yield from self._below(child, children, depth)
        yield path, self.size_bytes.get(path, 0), self.objects.get(path, 0)


def measure(
    tier: Tier,
    *,
    by: By = By.PLACE,
    prefix: str = "",
    records: Records | None = None,
    wanted: Callable[[TopicName | None], bool] | None = None,
    now: datetime,
    listener: Callable[[int], None] = lambda _: None,
) -> Usage:
    """Count a tier's bytes.

    Args:
        tier: where objects are listed.
        by: the groups that are counted.
        prefix: only objects whose keys begin so.
        records: owners of objects; None to inspect the objects, which is done only where it is needed.
        wanted: only these topics' objects; None for all, and other objects as well.
        now: what ages are counted to.
        listener: called with the number of objects that are listed.

    Raises:
        StoreError, FormatError: of the tier or the records.
    """
    usage = Usage()
    owners = None if records is None else _recorded_owners(records)
    others = _Others()
    pairs = in_batches(pair_up(others.watch(tier.list_objects(prefix))))
    if owners is None and (by is By.PLACE or wanted is not None):
        looked = inspect_batches(pairs, partial(_owner, tier))
    else:
        looked = ((some, [_recorded_owner(owners, pair) for pair in some]) for some in pairs)
    for some, owned in looked:
        for pair, topic in zip(some, owned, strict=True):
            objects = _objects(pair)
            others.take(objects)
            if wanted is None or wanted(topic):
                for each in objects:
                    usage.add(_path(by, pair, each, topic, now), each.size_bytes)
        listener(others.listed)
    if wanted is None and others.objects:
        usage.add((OTHER,), others.size_bytes, others.objects)
    return usage


class _Others:
    """Objects that are listed and belong to no pair."""

    def __init__(self) -> None:
        self.listed = 0
        self.objects = 0
        self.size_bytes = 0

    def watch(self, listing: Iterable[ListedObject]) -> Iterator[ListedObject]:
        for each in listing:
            self.listed += 1
            self.objects += 1
            self.size_bytes += each.size_bytes
            yield each

    def take(self, objects: Iterable[ListedObject]) -> None:
        for each in objects:
            self.objects -= 1
            self.size_bytes -= each.size_bytes


def _objects(pair: Pair) -> list[ListedObject]:
    given = (pair.data, pair.index)
    return [*(each for each in given if each is not None), *pair.checksums]


def _path(by: By, pair: Pair, listed: ListedObject, topic: TopicName | None, now: datetime) -> Path:
    if by is By.FORMAT:
        return (pair.key.object_format.value,)
    if by is By.STORAGE_CLASS:
        return (listed.storage_class or UNKNOWN_CLASS,)
    if by is By.AGE:
        age = now - listed.modified_at
        return (next((name for days, name in _AGES if age < timedelta(days=days)), "1 year and more"),)
    if topic is None:
        return (UNKNOWN_TOPIC,)
    tenant, _, rest = topic.full.removeprefix(_DOMAIN).partition("/")
    namespace, _, local = rest.partition("/")
    return tuple(part for part in (tenant, namespace, local) if part)


def _recorded_owners(records: Records) -> dict[UUID, TopicName]:
    owners: dict[UUID, TopicName] = {}
    for some in in_parts(records.topics()):
        for topic, info in records.read(some).items():
            for ledger in info.ledgers:
                owners.update((copy.key.uuid, topic) for copy in recorded_copies(topic, ledger))
    return owners


def _recorded_owner(owners: Mapping[UUID, TopicName] | None, pair: Pair) -> TopicName | None:
    """Return the topic of a pair without a request; None if it is not known, or with `owners` None not needed."""
    if owners is None:
        return None
    return _owner_by_key(pair) or owners.get(pair.key.uuid)


def _owner_by_key(pair: Pair) -> TopicName | None:
    name = pair.key.managed_ledger
    return None if name is None else topic_of_managed_ledger(name)


def _owner(tier: Tier, pair: Pair) -> TopicName | None:
    known = _owner_by_key(pair)
    if known is not None:
        return known
    for seen in (pair.data, pair.index):
        if seen is not None:
            try:
                name = tier.stat(seen.key).user_metadata.get(TOPIC_KEY)
            except ObjectNotFoundError:
                return None
            except FormatError:  # its user metadata cannot be read
                continue
            return None if name is None else topic_of_managed_ledger(name)
    return None
