"""The catalogue from a bucket alone: list it, read the indexes, ask for the user metadata.

Nothing but the objects is needed: no broker, no records. One listing, then two or three small requests per pair of
objects, many at once. A MapFile has its topic in its key, the others have it in their user metadata. Source:
docs/formats/index.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from offload_core.catalogue.model import Catalogue, Problem, StoredObject, build_catalogue
from offload_core.catalogue.reading import MAX_INDEX_BYTES, read_index
from offload_core.codec.object_format import (
    FILTERED_KEY,
    FILTERED_TRANSACTIONS,
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    ObjectKey,
    parse_key,
)
from offload_core.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError
from offload_hooks.values import ListedObject

CONCURRENCY = 32
"""Requests at once."""


@dataclass(slots=True)
class Pair:
    """An attempt's two objects as a listing has them, None for what is not there; a MapFile's `.crc` files, too."""

    key: ObjectKey
    data: ListedObject | None = None
    index: ListedObject | None = None
    data_checksums: ListedObject | None = None
    index_checksums: ListedObject | None = None


def list_catalogue(tier: Tier, *, prefix: str = "") -> Catalogue:
    """All offloaded objects of a tier whose keys begin with `prefix`.

    Objects of other kinds are passed over. An object that vanishes meanwhile counts as one that was never there.
    """
    pairs: dict[str, Pair] = {}
    checksums: dict[str, ListedObject] = {}
    for listed in tier.list_objects(prefix):
        key = parse_key(listed.key)
        if key is None:
            if listed.key.endswith(".crc"):
                checksums[listed.key] = listed
            continue
        pair = pairs.setdefault(key.data_key, Pair(key))
        if key.is_index:
            pair.index = listed
        else:
            pair.data = listed
    for pair in pairs.values():
        if pair.key.checksum_keys is not None:
            pair.data_checksums, pair.index_checksums = map(checksums.get, pair.key.checksum_keys)
    with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="offload-catalogue") as pool:
        described: Iterable[StoredObject | None] = pool.map(
            lambda pair: describe_pair(tier, pair), pairs.values()
        )
        return build_catalogue(stored for stored in described if stored is not None)


def describe_pair(tier: Tier, pair: Pair) -> StoredObject | None:
    """An attempt with its index and names, and what is wrong with it; None if it vanished meanwhile."""
    seen = pair.index or pair.data
    if seen is None:
        raise AssertionError("a pair is made from an object that was listed")
    try:
        metadata = _user_metadata(tier, pair.key, pair.data.key if pair.data else seen.key)
        stored = StoredObject(
            key=pair.key,
            cluster=metadata.get("pulsarclustername"),
            managed_ledger=pair.key.managed_ledger or metadata.get("managedledgername"),
            data_bytes=pair.data.size_bytes if pair.data else None,
            index_bytes=pair.index.size_bytes if pair.index else None,
            modified_at=seen.modified_at,
            index=None,
            checksum_key=pair.data_checksums.key if pair.data_checksums else None,
            is_filtered=metadata.get(FILTERED_KEY) == FILTERED_TRANSACTIONS,
        )
        return _judge(tier, pair, stored, metadata.get(FORMAT_VERSION_KEY, FORMAT_VERSION))
    except ObjectNotFoundError:
        return None


def _user_metadata(tier: Tier, key: ObjectKey, seen: str) -> Mapping[str, str]:
    """Pulsar's filesystem offloader keeps none."""
    return {} if key.is_mapfile else tier.stat(seen).user_metadata


def _judge(tier: Tier, pair: Pair, stored: StoredObject, version: str) -> StoredObject:
    """Read the index, and say what is wrong with the pair."""
    if version != FORMAT_VERSION:
        return _with(
            stored, Problem.UNKNOWN_VERSION, f"format version {version}; this program reads {FORMAT_VERSION}"
        )
    if stored.index_bytes is None:
        return _with(stored, Problem.NO_INDEX, "the data object has no index: an attempt that did not finish")
    if stored.index_bytes > MAX_INDEX_BYTES:
        return _with(stored, Problem.BROKEN_INDEX, f"the index is larger than {MAX_INDEX_BYTES} bytes")
    if stored.data_bytes is None:
        return _with(stored, Problem.NO_DATA, "the index has no data object")
    try:
        parsed = read_index(
            tier,
            stored.key,
            index_bytes=stored.index_bytes,
            data_bytes=stored.data_bytes,
            index_checksum_bytes=pair.index_checksums.size_bytes if pair.index_checksums else None,
        )
    except FormatError as error:
        return _with(stored, Problem.BROKEN_INDEX, str(error))
    if parsed.data_length != stored.data_bytes:
        detail = f"the data object has {stored.data_bytes} bytes, its index says {parsed.data_length}"
        return _with(stored, Problem.WRONG_LENGTH, detail)
    return replace(stored, index=parsed)


def _with(stored: StoredObject, problem: Problem, detail: str) -> StoredObject:
    return replace(stored, problem=problem, detail=detail)
