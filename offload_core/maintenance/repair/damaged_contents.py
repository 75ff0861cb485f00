"""Contents of a damaged data object: of each ledger the entries that are found, and those that are lost.

Spans of frames come from `frame_scan` and `mapfile_scan`. Each frame is identified by its own id where that fits
its place, else by its place where one fits. An id has no checksum: it is accepted where it follows, or is followed by,
one that is right; runs that hang on the block's header or its end come first, and others must fit between them. So a
part of an offloaded object that lies inside a message is not taken for entries of this one. Entries
that an index or a record expects, and that are not found, are lost.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES
from offload_core.format.codec.index import BlockEntry, ObjectIndex
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.object_marks import LostEntries
from offload_core.format.messages.frame_scan import BlockFrames, EntryVerdict, FoundFrame, FrameScan
from offload_core.format.messages.mapfile_scan import MapFileScan
from offload_core.storage.tier import Tier
from offload_hooks.bounded_cache import BoundedCache

CHUNK_BYTES = 4 << 20
_CHUNKS_KEPT = 8


class ObjectBytes:
    """An object of `size` bytes; used by one thread. Errors are the store's."""

    def __init__(self, tier: Tier, key: str, size: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._tier = tier
        self.key = key
        self.size = size
        self._chunk_bytes = chunk_bytes
        self._chunks: BoundedCache[int, memoryview] = BoundedCache(_CHUNKS_KEPT)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on, fewer where the object ends."""
        stop = min(offset + length, self.size)
        if stop <= offset:
            return b""
        parts = []
        while offset < stop:
            number = offset // self._chunk_bytes
            begin = number * self._chunk_bytes
            length_of_chunk = min(self._chunk_bytes, self.size - begin)
            chunk = self._chunks.load(
                number, partial(self._tier.read_range, self.key, begin, length_of_chunk)
            )
            parts.append(chunk[offset - begin : stop - begin])
            offset = begin + len(chunk)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


_KEPT = (EntryVerdict.SOUND, EntryVerdict.PLAIN)


@dataclass(slots=True)
class _FrameRun:
    """Frames that follow one another in bytes, with ids that do as well."""

    frames: list[FoundFrame]
    first: int

    @property
    def last(self) -> int:
        return self.frames[-1].entry_id


def identify(
    frames: Sequence[FoundFrame], first: int | None, stop: int | None, *, ends_well: bool, gaps: bool
) -> list[FoundFrame]:
    """Return the frames of a span whose entries are known, in the order of their ids.

    Args:
        first: the entry that the span begins with, if a header states it.
        stop: the entry that follows the span, if known.
        ends_well: a right end follows the last frame.
        gaps: ids may be missing on purpose; then each is taken as long as they ascend.

    Entries whose bytes are damaged are among them: only their ids are known.
    """
    if not frames:
        return []
    if gaps:
        return _ascending(frames, stop)
    runs = _runs(frames)
    at_begin = first is not None and frames[0].is_linked and runs[0].first == first
    at_end = ends_well and (len(runs[-1].frames) > 1 or runs[-1].last + 1 == stop)
    if len(runs) == 1 and (at_begin or at_end or len(frames) > 1):
        return runs[0].frames
    left = runs[0] if at_begin else None
    right = runs[-1] if at_end and (left is None or runs[-1].first > left.last) else None
    middle = runs[left is not None : len(runs) - (right is not None)]
    lowest = left.last + 1 if left is not None else first
    if right is not None:
        stop = right.first
    between = _between(middle, lowest, stop, ends_well=ends_well)
    return [*(left.frames if left else []), *between, *(right.frames if right else [])]


def _ascending(frames: Sequence[FoundFrame], stop: int | None) -> list[FoundFrame]:
    """The frames below `stop` whose ids ascend: of two that do not, either may be wrong."""
    found = [frame for frame in frames if frame.entry_id >= 0 and (stop is None or frame.entry_id < stop)]
    while wrong := {i for i, (one, two) in enumerate(pairwise(found)) if two.entry_id <= one.entry_id}:
        found = [frame for i, frame in enumerate(found) if i not in wrong and i - 1 not in wrong]
    return found


def _runs(frames: Sequence[FoundFrame]) -> list[_FrameRun]:
    runs = [_FrameRun([frames[0]], frames[0].entry_id)]
    for before, frame in pairwise(frames):
        if frame.is_linked and before.entry_id >= 0 and frame.entry_id == before.entry_id + 1:
            runs[-1].frames.append(frame)
        else:
            runs.append(_FrameRun([frame], frame.entry_id))
    return runs


def _between(
    runs: Sequence[_FrameRun], lowest: int | None, stop: int | None, *, ends_well: bool
) -> list[FoundFrame]:
    """The frames whose entries are known, if all of them lie from `lowest` on and below `stop`."""
    frames = [frame for run in runs for frame in run.frames]
    if lowest is not None and all(frame.is_linked for frame in frames):
        if stop is not None and len(frames) == stop - lowest:
            return _in_place(frames, range(lowest, stop))
        natural = range(lowest, lowest + len(frames))
        if stop is None and ends_well and [frame.entry_id for frame in frames] == list(natural):
            return frames
    chosen: list[_FrameRun] = []
    for run in sorted(runs, key=lambda run: -len(run.frames)):
        if run.first < (lowest or 0) or (stop is not None and run.last >= stop):
            continue
        if len(run.frames) == 1 and (stop is None or lowest is None):
            continue  # nothing bears its id out
        if all(_in_order(run, other) for other in chosen):
            chosen.append(run)
    chosen.sort(key=lambda run: run.first)
    return [frame for run in chosen for frame in run.frames]


def _in_order(run: _FrameRun, other: _FrameRun) -> bool:
    """Return whether two runs have their ids in the order of their bytes."""
    is_after = run.frames[0].offset > other.frames[0].offset
    return run.first > other.last if is_after else run.last < other.first


def _in_place(frames: Sequence[FoundFrame], ids: range) -> list[FoundFrame]:
    """As many frames as there are entries: they are these, in another order, or one of them has a damaged id."""
    found = [frame.entry_id for frame in frames]
    if sorted(found) == list(ids):
        return sorted(frames, key=lambda frame: frame.entry_id)
    wrong = [
        i for i, (frame, entry_id) in enumerate(zip(frames, ids, strict=True)) if frame.entry_id != entry_id
    ]
    if len(wrong) == 1:
        return [replace(frame, entry_id=entry_id) for frame, entry_id in zip(frames, ids, strict=True)]
    return [frame for frame, entry_id in zip(frames, ids, strict=True) if frame.entry_id == entry_id]


def is_kept(frame: FoundFrame) -> bool:
    """Return whether an entry's bytes are taken for those that were written."""
    return frame.verdict in _KEPT


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Facts from elsewhere about a ledger's entries in an object.

    Attributes:
        first: its first entry here; None if that is not known.
        stop: one past its last entry here; None if that is not known.
    """

    first: int | None = None
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry of `size` bytes, and where it lies in the data object: of a block-compressed one its block and row."""

    entry_id: int
    offset: int
    length: int
    size: int


@dataclass(slots=True, kw_only=True)
class LedgerContents:
    """Entries of one ledger in an object.

    Attributes:
        entries: those whose bytes are sound, by id.
        damaged: ids of entries that are there, with damaged bytes; `unsure` those that may be.
        first, stop: the ledger's share of the object, as far as is known.
        blocks: where its blocks begin; complete only if the object `is_clean`.
        payload_bytes: of all entries, the damaged ones as well.
    """

    ledger_id: int
    entries: list[FoundEntry] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    unsure: list[int] = field(default_factory=list)
    first: int = 0
    stop: int = 0
    blocks: list[BlockEntry] = field(default_factory=list)
    payload_bytes: int = 0

    def lost(self) -> list[tuple[int, int]]:
        """Ranges of ids, half-open, that are expected, and not among the entries."""
        ids = [self.first - 1, *(entry.entry_id for entry in self.entries), self.stop]
        return [(before + 1, after) for before, after in pairwise(ids) if after > before + 1]


@dataclass(slots=True, kw_only=True)
class Contents:
    """Contents of an object.

    Attributes:
        ledgers: in the order of their first blocks.
        is_clean: blocks follow one another as they declare, and every byte of headers, frames and padding is right.
        payload: reads the payload of one of the entries.
        unknown_entries: entries that were found, but whose ledger is not known.
        block_bytes: how long the first block is, by itself; 0 if that is not known.
    """

    ledgers: list[LedgerContents]
    is_clean: bool
    payload: Callable[[FoundEntry], bytes]
    unknown_entries: int = 0
    block_bytes: int = 0

    @property
    def entry_count(self) -> int:
        """Entries that can be saved."""
        return sum(len(ledger.entries) for ledger in self.ledgers)

    def lost(self) -> LostEntries:
        """Entries that cannot."""
        return LostEntries.of(
            (ledger.ledger_id, first, stop) for ledger in self.ledgers for first, stop in ledger.lost()
        )


def read_contents(
    data: ObjectBytes,
    key: ObjectKey,
    *,
    index: ObjectIndex | None,
    expected: Mapping[int, Expected],
    gaps: bool,
    lacks: bool = False,
) -> Contents:
    """Walk a data object of blocks.

    Args:
        index: its index, if it can be read; where it contradicts the blocks, it is ignored.
        expected: of each ledger, its entries by the index or by records.
        gaps: a filter left entries out.
        lacks: by itself it lacks entries, since it was saved before.

    Raises:
        StoreError: the tier fails.
    """

    def payload(entry: FoundEntry) -> bytes:
        return data.read(entry.offset, entry.length)

    starts = _starts(index)
    scan = FrameScan(data, key.object_format, gaps=gaps, starts=starts)
    spans = list(scan.stretches())
    owners = _owners(spans, key, starts, expected)
    ledgers: dict[int, LedgerContents] = {}
    unknown = 0
    for i, (span, owner) in enumerate(zip(spans, owners, strict=True)):
        if owner is None:
            unknown += sum(is_kept(frame) for frame in span.frames)
            continue
        contents = ledgers.setdefault(owner, LedgerContents(ledger_id=owner))
        following = _next_first(spans, owners, i, expected.get(owner, Expected()))
        first = None if span.header is None else span.header.first_entry_id
        found = identify(span.frames, first, following, ends_well=span.ends_well, gaps=gaps)
        _take(contents, span, found)
    for contents in ledgers.values():
        settle(contents, expected.get(contents.ledger_id, Expected()), key, payload, gaps=gaps)
    for ledger_id, known in expected.items():
        if ledger_id not in ledgers and known.stop is not None:
            first = known.first or 0
            ledgers[ledger_id] = LedgerContents(ledger_id=ledger_id, first=first, stop=known.stop)
    is_clean = _is_clean(spans, data.size, key.object_format, gaps=gaps or lacks) and not unknown
    header = spans[0].header if spans else None
    return Contents(
        ledgers=list(ledgers.values()),
        is_clean=is_clean,
        payload=payload,
        unknown_entries=unknown,
        block_bytes=0 if header is None else header.block_length,
    )


def _starts(index: ObjectIndex | None) -> dict[int, tuple[int, int]]:
    """Return the starts of blocks by the index: offset → ledger, first entry."""
    if index is None:
        return {}
    return {
        block.offset: (ledger.ledger_id, block.first_entry_id)
        for ledger in index.ledgers
        for block in ledger.blocks
    }


def _owners(
    spans: Sequence[BlockFrames],
    key: ObjectKey,
    starts: Mapping[int, tuple[int, int]],
    known: Collection[int],
) -> list[int | None]:
    """Return the ledger of each span; None where no source is reliable.

    In a streaming object ledgers ascend, and all but the first begin with entry 0. What the index and the frames agree
    on counts first, then a header that fits, then that a ledger goes on. `known` are the ledgers that the object may
    hold; none: unknown.
    """
    if key.ledger_id is not None:
        return [key.ledger_id] * len(spans)
    counts = Counter(header[1] for each in spans if (header := _declared(each)) is not None)
    owners: list[int | None] = []
    before: tuple[int, int] | None = None  # ledger and the entry that goes on in it
    for span in spans:
        first = _first_of(span)
        indexed, header = starts.get(span.offset), _declared(span)
        owner: int | None = None
        if indexed is not None and indexed[1] == first:
            owner = indexed[0]
        elif header is not None and header[0] == first and _fits(header, before, counts, known, span):
            owner = header[1]
        elif before is not None and first is not None and first >= before[1] > 0:
            owner = before[0]
        owners.append(owner)
        if owner is not None and span.frames:
            before = (owner, max(frame.entry_id for frame in span.frames) + 1)
    return owners


def _declared(span: BlockFrames) -> tuple[int, int] | None:
    """First entry and ledger in the header of a streaming block, whatever else of it is damaged."""
    if len(span.header_bytes) < BLOCK_HEADER_BYTES:
        return None
    first, ledger_id = struct.unpack_from(">qq", span.header_bytes, 20)
    return (first, ledger_id) if ledger_id >= 0 else None


def _fits(
    header: tuple[int, int],
    before: tuple[int, int] | None,
    counts: Mapping[int, int],
    known: Collection[int],
    span: BlockFrames,
) -> bool:
    first, ledger_id = header
    if known and ledger_id not in known:
        return False
    if not known and span.header is None and counts[ledger_id] < 2:
        return False
    if before is None:
        return True
    if ledger_id == before[0]:
        return first >= before[1]
    return ledger_id > before[0] and (first == 0 or counts[ledger_id] > 1)


def _first_of(span: BlockFrames) -> int | None:
    """The entry that a span begins with, by the first two frames that agree."""
    for before, frame in pairwise(span.frames):
        if before.entry_id >= 0 and frame.entry_id == before.entry_id + 1:
            return before.entry_id - span.frames.index(before)
    header = None if span.header is None else span.header.first_entry_id
    if span.frames and span.frames[0].entry_id >= 0:
        return span.frames[0].entry_id if header is None else header
    return header


def _next_first(
    spans: Sequence[BlockFrames], owners: Sequence[int | None], i: int, expected: Expected
) -> int | None:
    """The entry that follows a span: the first of its ledger's next span, or the end of the expected entries."""
    begin = _first_of(spans[i])
    if i + 1 < len(spans) and owners[i + 1] == owners[i]:
        following = spans[i + 1]
        if following.header is not None:
            first = following.header.first_entry_id
            return first if begin is None or first > begin else None
        return None
    return expected.stop


def _take(contents: LedgerContents, span: BlockFrames, frames: Iterable[FoundFrame]) -> None:
    found = list(frames)
    if span.begins_block:
        first = found[0].entry_id if found else None
        if span.header is not None:
            first = span.header.first_entry_id
        if first is not None:
            contents.blocks.append(BlockEntry(first_entry_id=first, part_number=0, offset=span.offset))
    for frame in found:
        if is_kept(frame):
            contents.entries.append(
                FoundEntry(frame.entry_id, frame.offset + FRAME_HEADER_BYTES, frame.length, frame.length)
            )
        elif frame.verdict is EntryVerdict.UNSURE:
            contents.unsure.append(frame.entry_id)
        else:
            contents.damaged.append(frame.entry_id)
        contents.payload_bytes += frame.length


def settle(
    contents: LedgerContents,
    expected: Expected,
    key: ObjectKey,
    payload: Callable[[FoundEntry], bytes],
    *,
    gaps: bool = False,
) -> None:
    """Put entries in their order, each once: of one that occurs in two ways, either may be right."""
    by_id: dict[int, FoundEntry | None] = {}
    for entry in contents.entries:
        known = by_id.setdefault(entry.entry_id, entry)
        if known is not entry and (known is None or payload(known) != payload(entry)):
            by_id[entry.entry_id] = None
    entries = [entry for entry in by_id.values() if entry is not None]
    contents.entries = sorted(entries, key=lambda entry: entry.entry_id)
    ids = [*by_id, *contents.damaged, *contents.unsure]
    begins = [block.first_entry_id for block in contents.blocks]
    first = min([*begins, *ids], default=0)
    contents.first = 0 if key.ledger_id is not None else first
    if expected.first is not None:
        contents.first = min(contents.first, expected.first)
    if not gaps:
        ids += begins  # a block has an entry at least
    contents.stop = max([*(each + 1 for each in ids), expected.stop or 0, contents.first])


def _is_clean(spans: Sequence[BlockFrames], size: int, object_format: ObjectFormat, *, gaps: bool) -> bool:
    """Return whether the walk found one block after another, as each declares, and nothing else."""
    position = 0
    for span in spans:
        header = span.header
        if header is None or span.offset != position or span.stop != position + header.block_length:
            return False
        if not _header_rest_is_zero(span, object_format):
            return False
        expected = header.first_entry_id
        for i, frame in enumerate(span.frames):
            is_next = frame.entry_id >= expected if gaps else frame.entry_id == expected
            if not (frame.is_linked and frame.is_exact and is_next):
                return False
            if i == 0 and frame.offset != span.offset + BLOCK_HEADER_BYTES:
                return False
            expected = frame.entry_id + 1
        position = span.stop
    return position == size and bool(spans)


def _header_rest_is_zero(span: BlockFrames, object_format: ObjectFormat) -> bool:
    begin = 28 if object_format is ObjectFormat.PIP17 else 36
    return not any(span.header_bytes[begin:])


@dataclass(slots=True, kw_only=True)
class MapFileContents:
    """The contents, and the scan that knows the file's header, records and metadata."""

    contents: Contents
    scan: MapFileScan


def read_mapfile_contents(
    data: ObjectBytes, key: ObjectKey, expected: Expected, *, gaps: bool = False
) -> MapFileContents:
    """Walk a MapFile's data file; `gaps`: a filter left ids out. `StoreError`: the tier fails."""
    assert key.ledger_id is not None
    scan = MapFileScan(data)
    stop = expected.stop
    if scan.metadata is not None and scan.metadata.last_entry_id is not None:
        stop = max(stop or 0, scan.metadata.last_entry_id + 1)
    ledger = LedgerContents(ledger_id=key.ledger_id)
    found = identify(scan.frames, 0, stop, ends_well=scan.ends_well, gaps=gaps)
    for frame in found:
        if is_kept(frame):
            ledger.entries.append(FoundEntry(frame.entry_id, frame.offset, frame.length, frame.size or 0))
        elif frame.verdict is EntryVerdict.UNSURE:
            ledger.unsure.append(frame.entry_id)
        else:
            ledger.damaged.append(frame.entry_id)
    settle(ledger, Expected(first=0, stop=stop), key, lambda e: scan.payload(e.offset, e.length))
    whole = [frame.entry_id for frame in scan.frames] == [frame.entry_id for frame in found]
    is_clean = scan.is_clean and scan.metadata is not None and whole and not ledger.damaged
    return MapFileContents(
        contents=Contents(
            ledgers=[ledger], is_clean=is_clean, payload=lambda e: scan.payload(e.offset, e.length)
        ),
        scan=scan,
    )
