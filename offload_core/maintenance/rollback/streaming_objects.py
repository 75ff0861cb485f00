"""The streaming objects of a tier, told apart by key and magic, and a ledger's record of its streaming segments.

The key has no `-ledger-` (`<uuid>`, `<uuid>-index`), and the index begins with its magic; where there is no index, the
data object begins with that of a streaming block. What has such a key and another magic is another program's: it is
listed, and never deleted. Source: docs/formats/streaming.md.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from offload_core.format.codec.block_layout import BLOCK_MAGIC
from offload_core.format.codec.object_format import INDEX_MAGIC, ObjectFormat, ObjectKey
from offload_core.metadata.catalogue import StoredObject, concurrently
from offload_core.metadata.catalogue.listing import Pair, describe_pair, list_pairs
from offload_core.metadata.records import AttemptStatus, LedgerRecord
from offload_core.metadata.records.segment_shares import covered_stop, first_entry_id, shares_of
from offload_core.storage.tier import Tier
from offload_hooks.errors import ObjectNotFoundError

_MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingObject:
    """A data object and its index under the key of a streaming object, or what there is of the two.

    Attributes:
        foreign: how it begins instead, if it is none; None for a streaming object.
    """

    stored: StoredObject
    foreign: str | None = None

    @property
    def key(self) -> ObjectKey:
        """The data object's key."""
        return self.stored.key

    @property
    def state(self) -> str:
        """`complete`, `not-streaming`, or the code of what is wrong with it."""
        if self.foreign is not None:
            return "not-streaming"
        return "complete" if self.stored.problem is None else self.stored.problem.value

    @property
    def detail(self) -> str | None:
        """Return what is wrong with it, in words."""
        return self.stored.detail if self.foreign is None else self.foreign

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers that its index lists, ascending; none where the index is not there or cannot be read."""
        index = self.stored.index
        return () if index is None else tuple(sorted(ledger.ledger_id for ledger in index.ledgers))

    @property
    def size_bytes(self) -> int:
        """Bytes of both objects."""
        return (self.stored.data_bytes or 0) + (self.stored.index_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingListing:
    """The streaming objects of a tier by key, and the keys of those objects that hold one ledger and are whole.

    Attributes:
        one_object_keys: PIP-17 objects and MapFiles of which both data and index are there.
    """

    objects: tuple[StreamingObject, ...]
    one_object_keys: frozenset[ObjectKey]


def list_streaming(tier: Tier, prefix: str = "") -> StreamingListing:
    """The streaming objects whose keys begin with `prefix`. One that vanishes meanwhile was never there.

    Raises:
        StoreError: the tier cannot be listed or read.
    """
    pairs = list_pairs(tier, prefix)
    streaming = [pair for pair in pairs if pair.key.object_format is ObjectFormat.STREAMING]
    found = concurrently(lambda pair: _look(tier, pair), streaming)
    objects = [each for each in found if each is not None]
    return StreamingListing(
        objects=tuple(sorted(objects, key=lambda each: each.key.data_key)),
        one_object_keys=frozenset(
            data_key_of(pair.key)
            for pair in pairs
            if pair.key.object_format is not ObjectFormat.STREAMING and pair.data and pair.index
        ),
    )


def data_key_of(key: ObjectKey) -> ObjectKey:
    """The key of the data object of the same attempt, whichever of the two this one is of."""
    return ObjectKey(
        folder=key.folder, uuid=key.uuid, ledger_id=key.ledger_id, is_index=False, is_mapfile=key.is_mapfile
    )


def how_it_begins(tier: Tier, stored: StoredObject) -> str | None:
    """Return how an object with a streaming object's key begins, if it is none; None for one, whatever else is wrong.

    Raises:
        ObjectNotFoundError: it vanished meanwhile.
        StoreError: the tier cannot be read.
    """
    if stored.index is not None:
        return None
    index = _magic(tier, stored.key.index_key, stored.index_bytes)
    if index is not None:
        expected = INDEX_MAGIC[ObjectFormat.STREAMING]
        return None if index == expected else f"the index begins with {index:08X}, not {expected:08X}"
    data = _magic(tier, stored.key.data_key, stored.data_bytes)
    if data is None:
        return "neither object is long enough to begin with a magic"
    expected = BLOCK_MAGIC[ObjectFormat.STREAMING]
    return None if data == expected else f"the data begins with {data:08X}, not {expected:08X}"


def _look(tier: Tier, pair: Pair) -> StreamingObject | None:
    try:
        stored = describe_pair(tier, pair)
        return None if stored is None else StreamingObject(stored=stored, foreign=how_it_begins(tier, stored))
    except ObjectNotFoundError:
        return None


def _magic(tier: Tier, key: str, size_bytes: int | None) -> int | None:
    """The first four bytes; None if there are not as many."""
    if size_bytes is None or size_bytes < _MAGIC_BYTES:
        return None
    (magic,) = struct.unpack(">I", tier.read_range(key, 0, _MAGIC_BYTES))
    return int(magic)


class Coverage(enum.Enum):
    """Share of a ledger in complete segments, by its record."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    CONDEMNED = "condemned"


def coverage_of(ledger: LedgerRecord) -> Coverage:
    """Return how much of a ledger its complete segments hold; one that is being deleted needs none of it."""
    if ledger.is_condemned:
        return Coverage.CONDEMNED
    is_whole = ledger.info.is_closed and covered_stop(ledger) >= (ledger.info.entries or 0)
    return Coverage.COMPLETE if is_whole else Coverage.PARTIAL


def streamed_entries(ledger: LedgerRecord) -> int:
    """Return how many entries lie in complete segments; of one whose end is not recorded, none are counted."""
    return sum(
        max(0, share.end_entry_id + 1 - first_entry_id(ledger, share.uuid))
        for share in shares_of(ledger)
        if share.complete and share.end_entry_id is not None
    )


def is_under_way(ledger: LedgerRecord) -> bool:
    """Return whether a segment of it is being offloaded, or is to be."""
    return any(share.status is AttemptStatus.ASSIGNED for share in shares_of(ledger))
