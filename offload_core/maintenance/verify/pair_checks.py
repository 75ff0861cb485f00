"""Checks of one pair of objects by itself: user metadata, index, checksum file.

The data object is not read, but for the beginning of a MapFile, which has the ledger's metadata.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from offload_core.format.codec.block_checksums import BlockChecksums, block_lengths_of
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.entry_directory import parse_directory
from offload_core.format.codec.index import LedgerIndex, ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.mapfile.index_file import parse_index_file
from offload_core.format.codec.object_format import (
    CLUSTER_KEY,
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    INDEX_MAGIC,
    ROLE_KEY,
    TOPIC_KEY,
    ObjectFormat,
    ObjectKey,
)
from offload_core.format.codec.object_marks import (
    FILTERED_KEY,
    FILTERED_MODE_KEY,
    LOST_KEY,
    NO_MARKS,
    ObjectMarks,
)
from offload_core.maintenance.verify.findings import INDEX_CODES, Code, Finding, Findings, code_of, of_error
from offload_core.metadata.catalogue.copy_check import TOPIC_OF_METADATA, CopyStat, abridged
from offload_core.metadata.catalogue.index_reading import (
    MAX_INDEX_BYTES,
    decode_index,
    read_block_checksums,
    read_index_bytes,
    read_whole_index,
)
from offload_core.metadata.catalogue.listing import Pair, listed_of, look_up
from offload_core.storage.tier import Tier
from offload_hooks import WholeObject
from offload_hooks.errors import (
    BadMagicError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    ObjectNotFoundError,
    StoreError,
    UnsupportedVersionError,
)
from offload_hooks.values import ListedObject, ObjectStat


def _checksums(tier: Tier, pair: Pair, index_crc: int, found: Findings) -> BlockChecksums | None:
    """Read the checksums of a pair, whose index has this CRC-32C; None if there are none of its objects.

    Raises:
        StoreError: the tier cannot be read.
    """
    listed, data, index = pair.block_checksums, pair.data, pair.index
    if listed is None or data is None or index is None:
        return None
    try:
        checksums = read_block_checksums(tier, pair.key, listed.size_bytes)
    except ObjectNotFoundError:
        return None
    except UnsupportedVersionError as error:
        found.add(of_error(Code.CHECKSUMS_VERSION, error))
        return None
    except FormatError as error:
        found.add(of_error(Code.CHECKSUMS_DAMAGED, error))
        return None
    stored = (data.size_bytes, index.size_bytes)
    if stored != (checksums.data_length, checksums.index_length):
        expected = (checksums.data_length, checksums.index_length)
        found.add(
            _other(
                pair.key.block_checksums_key,
                *("{} and {} bytes".format(*each) for each in (expected, stored)),
            )
        )
        return None
    if checksums.index_crc != index_crc:
        found.add(
            Finding(
                code=Code.CHECKSUMS_INDEX,
                key=pair.key.index_key,
                ledger_id=pair.key.ledger_id,
                expected=f"{checksums.index_crc:08x}",
                found=f"{index_crc:08x}",
            )
        )
    return checksums


def _fit_index(checksums: BlockChecksums, key: ObjectKey, index: ObjectIndex, found: Findings) -> bool:
    """Return whether the checksums are of the index's blocks; a MapFile's are of any lengths."""
    lengths = block_lengths_of(index)
    if index.object_format is ObjectFormat.MAPFILE or np.array_equal(lengths, checksums.lengths):
        return True
    expected = f"{len(checksums.lengths)} blocks, {checksums.data_length} bytes"
    stored = f"{len(lengths)} blocks, {lengths.sum()} bytes"
    found.add(_other(key.block_checksums_key, expected, f"{stored} by the index"))
    return False


def _other(key: str, expected: str, found: str) -> Finding:
    return Finding(code=Code.CHECKSUMS_OTHER, key=key, expected=expected, found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFacts:
    """Facts about a ledger's entries in one object.

    Attributes:
        last_block: the first entry of its last block.
        stop_entry_id: one past its last entry here.
        entries, size: of the whole ledger, by the index; None if it lacks them, or the ledger was open.
    """

    ledger_id: int
    first_entry_id: int
    last_block: int
    stop_entry_id: int | None
    entries: int | None
    size: int | None


@dataclass(slots=True, kw_only=True)
class Examined:
    """A pair of objects and its findings; `pair` as it is now, which may be more than was listed.

    Attributes:
        index: None if none can be read; `index_crc` is its CRC-32C.
        checksums: those of the checksum file, if they fit it; see `has_checksums`.
        extents: of the ledgers in it; none if it is not sound.
        is_sound: both objects exist and fit each other.
        marks: by its user metadata.
        stat: of its data object; None without one.
        abridged: its index, for `check_copy`; None if it is not sound.
    """

    pair: Pair
    cluster: str | None
    managed_ledger: str | None
    marks: ObjectMarks
    index: ObjectIndex | None = None
    index_crc: int = 0
    checksums: BlockChecksums | None = None
    has_checksums: bool = False
    is_sound: bool = False
    stat: CopyStat | None = None
    abridged: ObjectIndex | None = None
    extents: tuple[LedgerFacts, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    @property
    def key(self) -> ObjectKey:
        """The pair's key, perhaps that of its index."""
        return self.pair.key

    @property
    def size_bytes(self) -> int:
        """Bytes of both objects."""
        return sum(each.size_bytes for each in (self.pair.data, self.pair.index) if each is not None)


def examine(tier: Tier, listed: Pair) -> Examined | None:
    """Examine a pair that was listed; None if it is gone. Of checksums that lie beside nothing only whose they are.

    Raises:
        StoreError: the tier cannot be read.
    """
    found = Findings(listed.key.data_key)
    data = _stat(tier, listed.key.data_key, listed.data, found)
    whole = _whole_index(tier, listed)
    index = _stat(tier, listed.key.index_key, listed.index, found) if whole is None else whole.stat
    if data is None and index is None:
        return _alone(tier, listed, found) if listed.is_lone else None
    pair = Pair(
        listed.key,
        data=listed_of(data),
        index=listed_of(index),
        data_checksums=listed.data_checksums,
        index_checksums=listed.index_checksums,
        block_checksums=listed.block_checksums,
    )
    stat = data or index
    metadata: Mapping[str, str] = {} if stat is None else stat.user_metadata
    examined = Examined(
        pair=pair,
        cluster=metadata.get(CLUSTER_KEY),
        managed_ledger=pair.key.managed_ledger or metadata.get(TOPIC_KEY),
        marks=ObjectMarks.of(metadata),
        stat=None if data is None else CopyStat.of(data),
    )
    is_described = any(FORMAT_VERSION_KEY in each.user_metadata for each in (data, index) if each is not None)
    if (
        is_described or not pair.key.is_mapfile
    ) and not found.found:  # a MapFile has none, as Pulsar leaves it
        for each, role in ((data, "data"), (index, "index")):
            if each is not None:
                found.extend(_user_metadata(each, role))
        if data is not None and index is not None:
            found.extend(_contradictions(data.user_metadata, index))
        found.extend(_lost(stat))
    try:
        if data is not None and index is not None:
            _read(tier, examined, found, None if whole is None else memoryview(whole.data))
    except ObjectNotFoundError:
        return None
    examined.findings = found.found
    return examined


def try_examine(tier: Tier, listed: Pair, *, keeps_index: bool = False) -> Examined | StoreError | None:
    """Examine a pair, as `examine`; return an error if the tier cannot be read.

    Args:
        keeps_index: index and checksums stay; they may be large.
    """
    try:
        examined = examine(tier, listed)
    except StoreError as error:
        error.at(key=listed.key.data_key)
        return error
    if examined is not None and not keeps_index:
        examined.index = None
        examined.checksums = None
    return examined


def _stat(tier: Tier, key: str, listed: ListedObject | None, found: Findings) -> ObjectStat | None:
    """Return what the tier has under a key, without user metadata if that cannot be read."""
    try:
        return look_up(tier, key)
    except FormatError as error:
        found.add(of_error(Code.UNREADABLE_METADATA, error, key=key))
        if listed is None:
            return None
        return ObjectStat(
            key=key,
            size_bytes=listed.size_bytes,
            modified_at=listed.modified_at,
            storage_class=listed.storage_class,
        )


def _whole_index(tier: Tier, listed: Pair) -> WholeObject | None:
    """Read an index with its user metadata, where that is one request and the index is small."""
    try:
        return None if listed.is_lone else read_whole_index(tier, listed.key)
    except ObjectNotFoundError:
        return None


def _alone(tier: Tier, listed: Pair, found: Findings) -> Examined | None:
    """Examine checksums that lie beside nothing: their key, or their user metadata, names their topic."""
    if not listed.checksums:
        return None
    metadata: Mapping[str, str] = {}
    beside = listed.block_checksums
    if beside is not None:
        stat = _stat(tier, beside.key, beside, found)
        if stat is None:
            return None
        metadata = stat.user_metadata
    return Examined(
        pair=listed,
        cluster=metadata.get(CLUSTER_KEY),
        managed_ledger=listed.key.managed_ledger or metadata.get(TOPIC_KEY),
        marks=NO_MARKS,
    )


def _user_metadata(stat: ObjectStat, role: str) -> list[Finding]:
    found = []
    version = stat.user_metadata.get(FORMAT_VERSION_KEY)
    if version != FORMAT_VERSION:
        code = Code.NO_VERSION if version is None else Code.UNKNOWN_VERSION
        found.append(Finding(code=code, key=stat.key, expected=FORMAT_VERSION, found=version))
    given = stat.user_metadata.get(ROLE_KEY)
    if given is not None and given != role:
        code = Code.WRONG_ROLE
        found.append(Finding(code=code, key=stat.key, expected=role, found=given))
    return found


def _contradictions(data: Mapping[str, str], index: ObjectStat) -> list[Finding]:
    return [
        Finding(
            code=Code.CONTRADICTION,
            what=f"data and index do not agree on {name!r} in their user metadata",
            key=index.key,
            expected=data.get(name),
            found=index.user_metadata.get(name),
        )
        for name in (TOPIC_KEY, CLUSTER_KEY, FILTERED_KEY, FILTERED_MODE_KEY, LOST_KEY)
        if data.get(name) != index.user_metadata.get(name)
    ]


def _lost(stat: ObjectStat | None) -> list[Finding]:
    lost = None if stat is None else ObjectMarks.of(stat.user_metadata).lost
    if stat is None or lost is None:
        return []
    first = lost.ranges[0] if lost.ranges else None
    return [
        Finding(
            code=Code.LOST_ENTRIES,
            key=stat.key,
            ledger_id=None if first is None else first[0],
            entry_id=None if first is None else first[1],
            found=lost.pack(),
        )
    ]


def _read(tier: Tier, examined: Examined, found: Findings, contents: memoryview | None) -> None:
    pair, key = examined.pair, examined.key
    assert pair.data is not None
    assert pair.index is not None
    try:
        stored = read_index_bytes(tier, key, pair.index.size_bytes) if contents is None else contents
        examined.index_crc = crc32c(stored)
        checksums = _checksums(tier, pair, examined.index_crc, found)
        index = decode_index(
            tier,
            key,
            stored,
            data_bytes=pair.data.size_bytes,
            index_checksum_bytes=pair.index_checksums.size_bytes if pair.index_checksums else None,
        )
    except FormatError as error:
        found.add(_judge_index(tier, key, pair.index, error))
        return
    examined.index = index
    if checksums is not None and _fit_index(checksums, key, index, found):
        examined.checksums, examined.has_checksums = checksums, True
    if index.data_length != pair.data.size_bytes:
        found.add(
            Finding(
                code=Code.WRONG_LENGTH,
                ledger_id=key.ledger_id,
                offset=min(index.data_length, pair.data.size_bytes),
                expected=f"{index.data_length} bytes by the index",
                found=f"{pair.data.size_bytes} bytes",
            )
        )
        return
    _check_directory(tier, key, index, found)
    _check_topic(examined, index, found)
    examined.is_sound = True
    examined.abridged = abridged(index)
    examined.extents = tuple(map(ledger_facts, index.ledgers))


def _judge_index(tier: Tier, key: ObjectKey, index: ListedObject, error: FormatError) -> Finding:
    """Return what an error of the index means; of a MapFile it may be one of the data file's beginning."""
    code = code_of(error, INDEX_CODES, Code.INDEX_MISMATCH)
    if key.is_mapfile and error.key != key.index_key:
        error.key = key.index_key
        if not isinstance(error, IndexMismatchError | EntryOrderError):
            try:
                size = index.size_bytes
                parse_index_file(tier.read_range(key.index_key, 0, size) if size else b"", MAX_INDEX_BYTES)
            except FormatError as of_index:
                error = of_index
            else:
                code, error.key = Code.MAPFILE_DAMAGED, key.data_key
    elif isinstance(error, BadMagicError) and index.size_bytes >= 4:
        (magic,) = struct.unpack(">I", tier.read_range(key.index_key, 0, 4))
        if magic in INDEX_MAGIC.values() and magic != INDEX_MAGIC[key.object_format]:
            code = Code.INDEX_OTHER_FORMAT
    return of_error(code, error, key=key.index_key, ledger_id=key.ledger_id)


def _check_directory(tier: Tier, key: ObjectKey, index: ObjectIndex, found: Findings) -> None:
    place = index.directory
    if place is None:
        return
    try:
        parse_directory(tier.read_range(key.index_key, place.offset, place.length), index.data_length)
    except FormatError as error:
        found.add(of_error(Code.INDEX_DIRECTORY, error, key=key.index_key, offset=place.offset))


def _check_topic(examined: Examined, index: ObjectIndex, found: Findings) -> None:
    """Compare the topic with the one in the ledger's own metadata, where a broker made it."""
    for ledger in index.ledgers:
        if not isinstance(ledger.metadata, LedgerMetadata) or examined.managed_ledger is None:
            continue
        named = dict(ledger.metadata.custom).get(TOPIC_OF_METADATA)
        if named is not None and named != examined.managed_ledger.encode():
            found.add(
                Finding(
                    code=Code.INDEX_OTHER_TOPIC,
                    key=examined.key.index_key,
                    ledger_id=ledger.ledger_id,
                    expected=examined.managed_ledger,
                    found=named.decode(errors="backslashreplace"),
                )
            )


def ledger_facts(ledger: LedgerIndex) -> LedgerFacts:
    """Return the facts that an index states of a ledger's entries in its object."""
    metadata = ledger.metadata
    stop = ledger.blocks[-1].end_entry_id
    entries, size = None, ledger.payload_bytes
    if isinstance(metadata, LedgerInfo):
        if metadata.is_closed:
            entries = metadata.entries
        else:
            stop, size = metadata.entries, None
    elif metadata.last_entry_id is not None:
        entries = metadata.last_entry_id + 1
    return LedgerFacts(
        ledger_id=ledger.ledger_id,
        first_entry_id=ledger.first_entry_id,
        last_block=ledger.blocks[-1].first_entry_id,
        stop_entry_id=stop,
        entries=entries,
        size=size,
    )
