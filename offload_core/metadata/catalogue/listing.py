"""The catalogue from a bucket alone: list it, ask for the user metadata, read the indexes.

Only the objects are needed: no broker, no records. One listing, then one to three small requests per pair of objects,
many at once: one where a driver reads an index and its user metadata by the same request. A MapFile has its topic in
its key, others in their user metadata. Where that needs a request of its own, the plan of a scan leaves indexes to its
tasks, as far as keys and sizes are enough. Source: docs/formats/index.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, takewhile
from typing import TypeVar

from offload_core.format.codec.object_format import (
    CLUSTER_KEY,
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    TOPIC_KEY,
    ObjectKey,
    parse_block_checksums_key,
    parse_checksum_key,
    parse_key,
)
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.format.cycle_search import rare_search_for_cycles
from offload_core.metadata.catalogue.catalogue_cache import (
    MOST_INDEX_BYTES,
    CachedPair,
    CatalogueCache,
    catalogue_cache,
    fingerprint_of,
    is_settled,
)
from offload_core.metadata.catalogue.concurrency import concurrently
from offload_core.metadata.catalogue.index_reading import (
    MAX_INDEX_BYTES,
    read_index,
    read_index_bytes,
    read_whole_index,
)
from offload_core.metadata.catalogue.model import Catalogue, Problem, StoredObject, build_catalogue
from offload_core.storage.tier import Tier
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import FormatError, ObjectNotFoundError
from offload_hooks.json_text import shortened
from offload_hooks.values import ListedObject, ObjectStat

_R = TypeVar("_R")


@dataclass(slots=True)
class Pair:
    """An attempt's two objects as a listing has them, None for one that is missing; and their checksum files.

    `data_checksums` and `index_checksums` are a MapFile's `.crc` files, `block_checksums` is one file for both objects.
    `user_metadata` and `index_contents`, the bytes of its index, are None until they are read.
    """

    key: ObjectKey
    data: ListedObject | None = None
    index: ListedObject | None = None
    data_checksums: ListedObject | None = None
    index_checksums: ListedObject | None = None
    block_checksums: ListedObject | None = None
    user_metadata: Mapping[str, str] | None = None
    index_contents: bytes | None = None

    @property
    def data_key(self) -> str:
        """The data object's key, whether it is there or not."""
        return self.key.data_key if self.data is None else self.data.key

    @property
    def is_lone(self) -> bool:
        """True if it has only checksum files."""
        return self.data is None and self.index is None

    @property
    def checksums(self) -> tuple[ListedObject, ...]:
        """The checksum files."""
        found = (self.data_checksums, self.index_checksums, self.block_checksums)
        return tuple(each for each in found if each is not None)


@rare_search_for_cycles()
def list_catalogue(
    tier: Tier,
    *,
    prefix: str = "",
    known: Catalogue | None = None,
    read_indexes: bool = True,
    cached: bool = False,
    ledger_id: int | None = None,
) -> Catalogue:
    """List all offloaded objects of a tier whose keys begin with `prefix`.

    Objects of other kinds are ignored, and those that vanish meanwhile. With `read_indexes=False` an index is read
    only for a streaming object, whose key does not name its ledgers, or where a ledger has several copies; the others
    are `Ledger.unread`. With `known`, an earlier catalogue, only new objects are inspected: complete copies do not
    change. With `cached`, what was read of objects before is kept on disk: see `catalogue_cache`. With
    `ledger_id`, objects that are another ledger's by their keys are left out.
    """
    earlier = {} if known is None else known.complete
    describe = partial(describe_pair, tier, read_indexes=read_indexes)
    new, found = [], []
    for pair in stream_unordered(tier, prefix):
        if ledger_id is not None and pair.key.ledger_id not in (None, ledger_id):
            continue
        stored = _unchanged(earlier.get(pair.key), pair) if earlier else None
        if stored is None:
            new.append(pair)
        else:
            found.append(stored)
    with catalogue_cache(tier, is_used=cached) as cache:
        found += [
            stored
            for stored in inspect_pairs(new, describe, cache, reads_indexes=read_indexes)
            if stored is not None
        ]
    return build_catalogue(found if read_indexes else _compared(tier, found))


def inspect_pairs(
    pairs: Sequence[Pair],
    inspect: Callable[[Pair], _R],
    cache: CatalogueCache | None,
    *,
    reads_indexes: bool = True,
) -> list[_R]:
    """`inspect` of each pair, many at once, in their order.

    A pair of which a cache has what is read gets it before, and needs no request; what is read of the others is kept.
    """
    if cache is None:
        return concurrently(inspect, pairs)
    cached = cache.find(pair.data_key for pair in pairs)
    is_known = []
    for pair in pairs:
        is_recalled = recall(pair, cached.get(pair.data_key))
        reads_index = reads_indexes or pair.key.ledger_id is None
        is_known.append(is_recalled and (pair.index_contents is not None or not reads_index))
    new = [pair for pair, known in zip(pairs, is_known, strict=True) if not known]
    inspected = iter(concurrently(inspect, new))
    found = [inspect(pair) if known else next(inspected) for pair, known in zip(pairs, is_known, strict=True)]
    cache.keep(to_cache(new, cached))
    return found


def recall(pair: Pair, cached: CachedPair | None) -> bool:
    """Give a pair what a cache has of it; return False if that is nothing, or of objects that have changed."""
    if cached is None or cached.fingerprint != fingerprint_of(pair.data, pair.index):
        return False
    pair.user_metadata, pair.index_contents = cached.user_metadata, cached.index_contents
    return True


def to_cache(pairs: Iterable[Pair], cached: Mapping[str, CachedPair]) -> list[CachedPair]:
    """What was read of pairs that can be found again by their objects, but for what is `cached` already."""
    read = (
        CachedPair(pair.data_key, fingerprint, pair.user_metadata, pair.index_contents)
        for pair in pairs
        if pair.user_metadata is not None
        and is_settled(pair.data, pair.index)
        and (fingerprint := fingerprint_of(pair.data, pair.index)) is not None
    )
    return [each for each in read if each != cached.get(each.key)]


def list_pairs(tier: Tier, prefix: str = "") -> list[Pair]:
    """List the pairs of data and index objects whose keys begin with `prefix`; nothing is read."""
    return list(stream_pairs(tier, prefix))


def stream_pairs(tier: Tier, prefix: str = "") -> Iterator[Pair]:
    """List the same objects while the listing goes on."""
    return pair_up(tier.list_objects(prefix))


_PAGE = 1000
"""Objects that one request of a listing answers, in most stores."""

_DIGITS = "0123456789abcdef"


def stream_unordered(tier: Tier, prefix: str = "") -> Iterator[Pair]:
    """List the same objects in any order, by several listings at once where there are many and the driver can.

    The names of objects begin with random digits, so that what begins with each of these is listed on its own.
    """
    listing = tier.list_objects(prefix)
    if not tier.describe().capabilities.lists_from_any_key:
        return pair_up(listing)
    begun = list(islice(listing, _PAGE))
    key = parse_key(begun[-1].key) if len(begun) == _PAGE else None
    begins = [] if key is None or key.is_mapfile else [f"{key.folder}{digit}" for digit in _DIGITS]
    begins = [each for each in begins if each > begun[-1].key and each.startswith(prefix)]
    listings = [chain(begun, listing), *(tier.list_objects(prefix, each) for each in begins)]
    return _side_by_side(
        [pair_up(_before(each, end)) for each, end in zip(listings, [*begins, None], strict=True)]
    )


def _before(listing: Iterable[ListedObject], end: str | None) -> Iterator[ListedObject]:
    """The objects of a listing whose keys come before `end`."""
    return iter(listing) if end is None else takewhile(lambda listed: listed.key < end, listing)


def _side_by_side(listings: Sequence[Iterator[Pair]]) -> Iterator[Pair]:
    """The pairs of several listings, some of each in turn; all go on at once."""
    left = list(listings)
    while left:
        parts = list(
            bounded_map(
                lambda each: list(islice(each, _PAGE // 2)), left, at_once=len(left), name="offload-listing"
            )
        )
        yield from chain.from_iterable(parts)
        left = [each for each, part in zip(left, parts, strict=True) if part]


def find_pair(tier: Tier, key: ObjectKey) -> Pair | None:
    """List one pair as it is now; None if neither object exists."""
    stem = key.data_key.removesuffix("data") if key.is_mapfile else key.data_key
    found = (pair for pair in stream_pairs(tier, stem) if pair.key.data_key == key.data_key)
    return next(found, None)


def look_up_pair(tier: Tier, key: ObjectKey) -> Pair:
    """Find the same by lookups, without listing and without checksums of blocks. Both objects may be missing."""
    try:
        data, index = look_up(tier, key.data_key), look_up(tier, key.index_key)
    except FormatError:  # its user metadata cannot be read, and a lookup then has no size either
        return find_pair(tier, key) or Pair(key)
    pair = Pair(key, data=listed_of(data), index=listed_of(index))
    if key.checksum_keys is not None:
        pair.data_checksums, pair.index_checksums = (
            listed_of(look_up(tier, each)) for each in key.checksum_keys
        )
    if data is not None:
        pair.user_metadata = data.user_metadata
    return pair


def look_up(tier: Tier, key: str) -> ObjectStat | None:
    """The object under a key; None if there is none."""
    try:
        return tier.stat(key)
    except ObjectNotFoundError:
        return None


def listed_of(stat: ObjectStat | None) -> ListedObject | None:
    """An object that was looked up, as a listing shows it."""
    return None if stat is None else stat.as_listed()


def pair_up(objects: Iterable[ListedObject]) -> Iterator[Pair]:
    """The pairs of a listing, while it goes on: a pair's objects follow each other in the order of keys."""
    return (pair for pair in _attempts(objects) if not pair.is_lone)


def stream_attempts(tier: Tier, prefix: str = "") -> Iterator[Pair]:
    """The same, with pairs that have only checksum files."""
    return _attempts(tier.list_objects(prefix))


def _attempts(objects: Iterable[ListedObject]) -> Iterator[Pair]:
    pair: Pair | None = None
    data_key = index_key = ""
    for listed in objects:
        if pair is not None and listed.key == index_key:
            pair.index = listed
            continue
        of = parse_block_checksums_key(listed.key)
        of_file = parse_checksum_key(listed.key) if of is None else None
        key = of or of_file or parse_key(listed.key)
        if key is None:
            continue
        named = key.data_key
        if pair is None or data_key != named:
            if pair is not None:
                yield pair
            pair = Pair(key)
            data_key, index_key = named, key.index_key
        if of is not None:
            pair.block_checksums = listed
        elif of_file is not None:
            if listed.key.endswith("/.data.crc"):
                pair.data_checksums = listed
            else:
                pair.index_checksums = listed
        elif key.is_index:
            pair.index = listed
        else:
            pair.data = listed
    if pair is not None:
        yield pair


def _unchanged(stored: StoredObject | None, pair: Pair) -> StoredObject | None:
    """The earlier description of a pair, if its sizes and time are the same."""
    if stored is None or stored.is_unread or pair.data is None or pair.index is None:
        return None
    now = (pair.data.size_bytes, pair.index.size_bytes, pair.index.modified_at)
    return stored if now == (stored.data_bytes, stored.index_bytes, stored.modified_at) else None


def describe_pair(tier: Tier, pair: Pair, *, read_indexes: bool = True) -> StoredObject | None:
    """Describe an attempt: its index, its names, its problem; None if it vanished meanwhile.

    With `read_indexes=False` the index of an object whose key names its ledger is not read.
    """
    listed = pair.index or pair.data
    if listed is None:
        raise AssertionError("a pair is made from an object that was listed")
    try:
        if pair.data is None and not _is_index_alone(tier, pair):
            return None
        metadata, damage = _user_metadata(tier, pair)
        stored = StoredObject(
            key=pair.key,
            cluster=metadata.get(CLUSTER_KEY),
            managed_ledger=pair.key.managed_ledger or metadata.get(TOPIC_KEY),
            data_bytes=pair.data.size_bytes if pair.data else None,
            index_bytes=pair.index.size_bytes if pair.index else None,
            modified_at=listed.modified_at,
            index=None,
            checksum_key=pair.data_checksums.key if pair.data_checksums else None,
            index_checksum_bytes=pair.index_checksums.size_bytes if pair.index_checksums else None,
            marks=ObjectMarks.of(metadata),
            storage_class=listed.storage_class if pair.data is None else pair.data.storage_class,
            version=metadata.get(FORMAT_VERSION_KEY),
            index_contents=pair.index_contents,
        )
        judged = _judge(stored, damage)
        if judged.is_complete and (read_indexes or judged.key.ledger_id is None):
            return with_index_of(tier, pair, judged)
        is_known = judged.problem in (Problem.NO_DATA, Problem.BROKEN_METADATA)
        if is_known and judged.key.ledger_id is None:
            return _with_lost_ledgers(tier, judged)
    except ObjectNotFoundError:
        return None
    return judged


def with_index_of(tier: Tier, pair: Pair, stored: StoredObject) -> StoredObject:
    """The description of a pair with its index, as `with_index`; the pair gets the index's bytes, if they are few."""
    if stored.index_bytes is None:
        raise AssertionError("an object without index has a problem")
    if pair.index_contents is None and stored.index_bytes <= MOST_INDEX_BYTES:
        pair.index_contents = bytes(read_index_bytes(tier, stored.key, stored.index_bytes))
        stored = replace(stored, index_contents=pair.index_contents)
    return with_index(tier, stored)


def _is_index_alone(tier: Tier, pair: Pair) -> bool:
    """Look up a pair of which only the index was listed; return True if it still exists.

    A listing is no snapshot: it may have passed the data object's key before that was written, and the index's key
    after that. If the index is there after the data object was not, the data is lost: see `StoredObject.is_lost`.
    """
    found = look_up_pair(tier, pair.key)
    if found.data is not None:
        pair.data, pair.user_metadata = found.data, found.user_metadata
    return found.index is not None


def _with_lost_ledgers(tier: Tier, stored: StoredObject) -> StoredObject:
    """A streaming object that is not read, with its index, if that can be read: it names the ledgers with a loss."""
    assert stored.index_bytes is not None
    try:
        index = read_index(tier, stored.key, index_bytes=stored.index_bytes, data_bytes=stored.data_bytes)
        return replace(stored, index=index)
    except FormatError:
        return stored


def _compared(tier: Tier, objects: list[StoredObject]) -> Iterable[StoredObject]:
    """Read the indexes of ledgers that have several copies: if one is broken, another counts."""
    copies = Counter(each for stored in objects if stored.is_complete for each in _ledgers_of(stored))
    several = [stored for stored in objects if any(copies[each] > 1 for each in _ledgers_of(stored))]
    unread = [stored for stored in several if stored.is_unread]
    read = dict(
        zip((stored.key for stored in unread), concurrently(lambda s: _found(tier, s), unread), strict=True)
    )
    chosen = (read.get(stored.key, stored) for stored in objects)
    return (stored for stored in chosen if stored is not None)


def _ledgers_of(stored: StoredObject) -> list[tuple[str | None, int | None]]:
    ids = [ledger.ledger_id for ledger in stored.index.ledgers] if stored.index else [stored.key.ledger_id]
    return [(stored.managed_ledger, ledger_id) for ledger_id in ids]


def _found(tier: Tier, stored: StoredObject) -> StoredObject | None:
    try:
        return with_index(tier, stored)
    except ObjectNotFoundError:
        return None


def _user_metadata(tier: Tier, pair: Pair) -> tuple[Mapping[str, str], FormatError | None]:
    """The user metadata of the data object, else of the index; and the error of the first.

    Both have the same names, by every writer. So where one request reads the index with its user metadata, and that is
    whole, the data object is not asked for.
    """
    if pair.user_metadata is None and pair.data is not None:
        _read_index_whole(tier, pair)
    if pair.user_metadata is not None:
        return pair.user_metadata, None
    damage: FormatError | None = None
    for listed in (pair.data, pair.index):
        if listed is not None:
            try:
                found = tier.stat(listed.key).user_metadata
            except FormatError as error:
                damage = damage or error
            else:
                pair.user_metadata = found if damage is None else None
                return found, damage
    return {}, damage


def _read_index_whole(tier: Tier, pair: Pair) -> None:
    """Read the index and the user metadata of a pair by one request; nothing, where that is not sure to do."""
    listed = pair.index
    if listed is None or listed.size_bytes > MOST_INDEX_BYTES or pair.key.is_mapfile:
        return
    whole = read_whole_index(tier, pair.key, MOST_INDEX_BYTES)
    if whole is None:
        return
    if (whole.stat.size_bytes, whole.stat.version) == (listed.size_bytes, listed.version):
        pair.index_contents = bytes(whole.data)
        if FORMAT_VERSION_KEY in whole.stat.user_metadata:
            pair.user_metadata = whole.stat.user_metadata


def _judge(stored: StoredObject, damage: FormatError | None) -> StoredObject:
    """Find a problem of the pair that shows without its index."""
    if stored.version not in (None, FORMAT_VERSION):
        detail = f"format version {shortened(stored.version)}; this program reads {FORMAT_VERSION}"
        return _with(stored, Problem.UNKNOWN_VERSION, detail)
    if stored.index_bytes is None:
        return _with(stored, Problem.NO_INDEX, "the data object has no index: an attempt that did not finish")
    if stored.index_bytes > MAX_INDEX_BYTES:
        return _with(stored, Problem.BROKEN_INDEX, f"the index is larger than {MAX_INDEX_BYTES} bytes")
    if stored.data_bytes is None:
        return _with(stored, Problem.NO_DATA, "the index has no data object")
    if damage is not None:
        return _with(stored, Problem.BROKEN_METADATA, str(damage))
    return stored


def with_index(tier: Tier, stored: StoredObject) -> StoredObject:
    """Read the index of an object without a known problem; the result has it, or a problem that it shows.

    Raises:
        ObjectNotFoundError: it vanished meanwhile.
        StoreError: the store fails.
    """
    if stored.index_bytes is None or stored.data_bytes is None:
        raise AssertionError("an object without data or index has a problem")
    try:
        parsed = read_index(
            tier,
            stored.key,
            index_bytes=stored.index_bytes,
            data_bytes=stored.data_bytes,
            index_checksum_bytes=stored.index_checksum_bytes,
            contents=stored.index_contents,
        )
    except FormatError as error:
        return _with(stored, Problem.BROKEN_INDEX, str(error))
    if parsed.data_length != stored.data_bytes:
        detail = f"the data object has {stored.data_bytes} bytes, its index says {parsed.data_length}"
        known = (
            parsed if stored.key.ledger_id is None else None
        )  # its user metadata names ledgers that lack entries
        return _with(replace(stored, index=known), Problem.WRONG_LENGTH, detail)
    return replace(stored, index=parsed, index_contents=None)


def _with(stored: StoredObject, problem: Problem, detail: str) -> StoredObject:
    return replace(stored, problem=problem, detail=detail, index_contents=None)
