"""Byte-for-byte copies of attempts to another tier; and of all objects of a tier, under the same keys, without records.

Objects are read and written by parts, some at once. They are read back once, and every byte is verified as by
`offload verify --deep`: a part has a CRC-32C in the source, and the target's must be the same. User metadata goes
along. The index comes last, so that a copy without one was broken off. Memory is bounded by parts, however large an
object is.

A copy of a tier compares objects that exist in the target, overwrites none that differs, and deletes nothing of the
source. So it goes on where it was broken off, and can be made again for objects that were added meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

from offload_core.format.codec.block_checksums import RunningChecksums
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.maintenance.relocate.entry_copies import Check
from offload_core.maintenance.verify import VerifiedObjects
from offload_core.maintenance.verify.attempt_checks import attempt_at, check_objects
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.index_reading import MAX_INDEX_BYTES
from offload_core.metadata.catalogue.listing import Pair, stream_pairs
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.storage.executors import Executor, ThreadExecutor
from offload_core.storage.tier import Tier, upload_blocks
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import DataLossError, FormatError, ObjectNotFoundError, OffloadError, RangeError
from offload_hooks.values import ObjectStat, ReadableBuffer, WholeObject

PART_BYTES = 8 << 20
"""All stores take parts of at least 5 MiB, and a shorter last one."""

PARTS_AT_ONCE = 4
"""Parts that are read, and written, at once."""

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


class _CopiedObject:
    """Checksums of the parts of an object that was copied, which the copy's must be, in whatever order they come."""

    def __init__(self, key: str, size_bytes: int, part_bytes: int, checksums: Sequence[int]) -> None:
        self._key = key
        self.size_bytes = size_bytes
        self._parts = list(_parts(size_bytes, part_bytes))
        self._checksums = checksums
        self._running = RunningChecksums([length for _, length in self._parts])
        self._unread = set(range(len(self._parts)))

    def take(self, data: memoryview, offset: int) -> None:
        """Compare the parts that end in bytes of the copy. `DataLossError`."""
        for number, checksum in self._running.update(data, offset):
            self._compare(number, checksum)

    def compare_rest(self, target: Tier) -> None:
        """Read and compare the parts of which not all bytes were given. `DataLossError`, `StoreError`."""
        numbers = sorted(self._unread)
        for number, checksum in _map_parts(lambda number: (number, self._read(target, number)), numbers):
            self._compare(number, checksum)

    def _read(self, target: Tier, number: int) -> int:
        return crc32c(target.read_range(self._key, *self._parts[number]))

    def _compare(self, number: int, found: int) -> None:
        (offset, length), checksum = self._parts[number], self._checksums[number]
        if found != checksum:
            raise _not_the_same(self._key, offset, length, checksum, found)
        self._unread.discard(number)


def _not_the_same(key: str, offset: int, length: int, checksum: int, found: int) -> DataLossError:
    return DataLossError(
        "a copy does not have the bytes of its original",
        key=key,
        offset=offset,
        expected=f"the CRC-32C {checksum:08x} of {length} bytes",
        found=f"{found:08x}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedBytes:
    """A copy of an attempt byte by byte, before it is verified.

    Attributes:
        size_bytes: of all its objects.
        index: its index, as it was written.
        data, companions: checksums of its data object, and of its checksum files.
    """

    size_bytes: int
    index: ReadableBuffer
    data: _CopiedObject
    companions: Sequence[_CopiedObject]

    def verify(self, target: Tier, key: ObjectKey) -> None:
        """Verify every byte of the copy, which must be the original's.

        Raises:
            DataLossError: it differs, or is not sound.
            StoreError: of the tier.
        """
        examined = check_objects(target, key, on_bytes=self.data.take)
        checksum = crc32c(self.index)
        if examined.index_crc != checksum:
            raise _not_the_same(key.index_key, 0, len(self.index), checksum, examined.index_crc)
        for each in (self.data, *self.companions):
            each.compare_rest(target)


def copy_attempt(
    source: Tier,
    keys: Sequence[ObjectKey],
    target: Tier,
    new_key: ObjectKey,
    check: Check,
    marks: Mapping[str, str] = MappingProxyType({}),
) -> CopiedBytes:
    """Copy an attempt's data, its checksum files, and its index; `verify` of the result compares them.

    Args:
        keys: of the attempt: the first that has an index.
        marks: user metadata of new objects, beside that of the old ones; a MapFile gets none.

    Raises:
        ObjectNotFoundError: data or index is not there.
        StoreError: of either tier; no index of the copy is left.
    """
    key, index = _first_index(source, keys)  # of an attempt without one nothing is copied
    pairs = [(key.data_key, new_key.data_key)]
    pairs += zip(key.companion_keys, new_key.companion_keys, strict=True)
    marks = {} if new_key.is_mapfile else marks
    size_bytes, copied = index.stat.size_bytes, list[_CopiedObject]()
    for old, new in pairs:
        try:
            copied.append(_copy_object(source, old, target, new, marks, check))
        except ObjectNotFoundError:
            if old == key.data_key:
                raise
            continue  # few have all of them
        size_bytes += copied[-1].size_bytes
    check(index.stat.size_bytes)
    target.write_index(new_key.index_key, index.data, user_metadata={**index.stat.user_metadata, **marks})
    return CopiedBytes(size_bytes=size_bytes, index=index.data, data=copied[0], companions=copied[1:])


def same_objects(source: Tier, target: Tier, key: str) -> bool:
    """Return whether two tiers have the same bytes and user metadata under a key; read all of them.

    Raises:
        ObjectNotFoundError: one tier has no such object.
        StoreError: of either tier.
    """
    here, there = source.stat(key), target.stat(key)
    if (here.size_bytes, dict(here.user_metadata)) != (there.size_bytes, dict(there.user_metadata)):
        return False
    parts = _parts(here.size_bytes, PART_BYTES)
    return all(
        source.read_range(key, offset, length) == target.read_range(key, offset, length)
        for offset, length in parts
    )


def _first_index(source: Tier, keys: Sequence[ObjectKey]) -> tuple[ObjectKey, WholeObject]:
    *others, last = keys
    for key in others:
        with suppress(ObjectNotFoundError):
            return key, source.read_object(key.index_key, MAX_INDEX_BYTES)
    return last, source.read_object(last.index_key, MAX_INDEX_BYTES)


def _copy_object(
    source: Tier, old: str, target: Tier, new: str, marks: Mapping[str, str], check: Check
) -> _CopiedObject:
    """Copy a small object by one request of each tier, where an upload takes four, and others by parts."""
    try:
        whole = source.read_object(old, PART_BYTES)
    except RangeError:
        return _copy_parts(source, source.stat(old), target, new, marks, check)
    check(whole.stat.size_bytes)
    target.write_index(new, whole.data, user_metadata={**whole.stat.user_metadata, **marks})
    return _CopiedObject(new, whole.stat.size_bytes, PART_BYTES, [crc32c(whole.data)])


def _copy_parts(
    source: Tier, stat: ObjectStat, target: Tier, key: str, marks: Mapping[str, str], check: Check
) -> _CopiedObject:
    part_bytes = _part_bytes(target, stat.size_bytes)
    checksums: list[int] = []
    with closing(_read(source, stat, part_bytes, checksums, check)) as parts:
        upload_blocks(
            target,
            key,
            parts,
            block_bytes=min(part_bytes, stat.size_bytes),
            total_bytes=stat.size_bytes,
            user_metadata={**stat.user_metadata, **marks},
            parts_in_flight=PARTS_AT_ONCE,
        )
    return _CopiedObject(key, stat.size_bytes, part_bytes, checksums)


def _read(
    source: Tier, stat: ObjectStat, part_bytes: int, checksums: list[int], check: Check
) -> Generator[memoryview, None, None]:
    """Yield the parts of an object, some of which are read ahead."""
    read = _map_parts(lambda part: source.read_range(stat.key, *part), _parts(stat.size_bytes, part_bytes))
    with closing(read):
        for part in read:
            checksums.append(crc32c(part))
            check(len(part))
            yield part


def _map_parts(work: Callable[[_Part], _Result], parts: Iterable[_Part]) -> Generator[_Result, None, None]:
    return bounded_map(work, parts, at_once=PARTS_AT_ONCE, ahead=PARTS_AT_ONCE, name="offload-relocate")


def _part_bytes(target: Tier, size_bytes: int) -> int:
    takes = target.describe().capabilities
    return max(PART_BYTES, takes.min_block_bytes, -(-size_bytes // takes.max_blocks))


def _parts(size_bytes: int, part_bytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, size_bytes, part_bytes):
        yield offset, min(part_bytes, size_bytes - offset)


_PAIRS_AT_ONCE = 2048


class PlainStatus(enum.Enum):
    """Status of a pair of objects."""

    MISSING = "missing"
    """The pair is not in the target, and would be copied."""
    COPIED = "copied"
    """The pair was copied, and every byte was verified."""
    THERE = "there"
    """The target has the same already."""
    HALF = "half"
    """The source has only one of its two objects: an attempt that was broken off. It is skipped."""
    CONFLICT = "conflict"
    """The target has another object under its key, which stays as it is."""
    FAILED = "failed"
    """The pair could not be copied, or is not sound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainResult:
    """Result for a pair of objects; `error` why it failed."""

    key: ObjectKey
    topic: TopicName | None
    size_bytes: int
    status: PlainStatus
    error: OffloadError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A pair that is copied, or compared; `there` are the keys of its objects that the target has."""

    key: ObjectKey
    there: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairMaker:
    """Copies and verifies a pair of objects. It deletes nothing, and may be called several times, also at once."""

    source: Tier
    target: Tier

    def __call__(self, task: _Task) -> PlainStatus | OffloadError:
        """Copy a pair; an error is returned."""
        try:
            return self._make(task)
        except ObjectNotFoundError as failure:
            return self._half_or(failure, task)
        except OffloadError as failure:
            return failure

    def _half_or(self, failure: OffloadError, task: _Task) -> PlainStatus | OffloadError:
        """Return HALF if the source's was deleted meanwhile; else the failure, which is the target's."""
        try:
            left = attempt_at(self.source, task.key)
        except OffloadError as other:
            return other
        return PlainStatus.HALF if left.data is None or left.index is None else failure

    def _make(self, task: _Task) -> PlainStatus:
        if not all(same_objects(self.source, self.target, each) for each in task.there):
            return PlainStatus.CONFLICT
        is_there = len(task.there) == 2
        if is_there:
            check_objects(self.target, task.key)
            return PlainStatus.THERE
        copied = copy_attempt(self.source, [task.key], self.target, task.key, lambda _: None)
        copied.verify(self.target, task.key)
        return PlainStatus.COPIED


@dataclass(slots=True, kw_only=True)
class _CopyUnderWay:
    """A pair and its result; `status` is None while an executor has it."""

    pair: Pair
    topic: TopicName | None
    status: PlainStatus | None = None
    error: OffloadError | None = None

    @property
    def result(self) -> PlainResult:
        parts = [each.size_bytes for each in (self.pair.data, self.pair.index) if each is not None]
        assert self.status is not None
        return PlainResult(
            key=self.pair.key, topic=self.topic, size_bytes=sum(parts), status=self.status, error=self.error
        )


class PlainCopy:
    """Copies a tier's objects to another; iterate over it once for the result of each pair.

    Args:
        prefix: only objects whose keys begin so.
        wants: return whether a topic's objects are copied; it gets None for objects that name none.
        audit: each object is recorded there before it is written; None for a dry run.
        state: skips objects that were verified in the target before and have not changed.
        executor: copies and verifies; None for a thread a core.

    Raises, when it is iterated over:
        StoreError: the source cannot be listed. An error of a pair is in its result.
    """

    def __init__(
        self,
        source: Tier,
        target: Tier,
        *,
        prefix: str = "",
        wants: Callable[[TopicName | None], bool] = lambda _: True,
        audit: AuditLog | None,
        state: VerifiedObjects | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._prefix = prefix
        self._wants = wants
        self._audit = audit
        self._state = state
        self._executor = ThreadExecutor() if executor is None else executor

    def __iter__(self) -> Iterator[PlainResult]:
        """Yield the result of each pair, in the order of keys."""
        wanted = self._wanted()
        while some := list(islice(wanted, _PAIRS_AT_ONCE)):
            yield from self._some(some)

    def _wanted(self) -> Iterator[_CopyUnderWay]:
        for pair in stream_pairs(self._source, self._prefix):
            topic = self._topic(pair)
            if self._wants(topic):
                yield _CopyUnderWay(pair=pair, topic=topic)

    def _some(self, some: list[_CopyUnderWay]) -> Iterator[PlainResult]:
        left = iter(some)
        for made in self._executor.run(
            _PairMaker(source=self._source, target=self._target), self._tasks(some)
        ):
            for each in left:
                if each.status is None:
                    self._take(each, made)
                    yield each.result
                    break
                yield each.result
        yield from (each.result for each in left)

    def _tasks(self, some: list[_CopyUnderWay]) -> Iterator[_Task]:
        """Yield tasks for an executor; each is recorded before it is given out."""
        for each in some:
            try:
                judged = self._judge(each.pair)
            except OffloadError as error:
                each.status, each.error = PlainStatus.FAILED, error
                continue
            if isinstance(judged, PlainStatus):
                each.status = judged
            else:
                yield judged

    def _take(self, each: _CopyUnderWay, made: PlainStatus | OffloadError) -> None:
        try:
            if isinstance(made, OffloadError):
                raise made
            if self._state is not None and made in (PlainStatus.COPIED, PlainStatus.THERE):
                self._state.add(attempt_at(self._target, each.pair.key), ())
            each.status = made
        except OffloadError as error:
            each.status, each.error = PlainStatus.FAILED, error

    def _topic(self, pair: Pair) -> TopicName | None:
        name = pair.key.managed_ledger
        for listed in (pair.data, pair.index):
            if name is None and listed is not None:
                try:
                    name = self._source.stat(listed.key).user_metadata.get(TOPIC_KEY)
                except (FormatError, ObjectNotFoundError):
                    continue
        return None if name is None else topic_of_managed_ledger(name)

    def _judge(self, pair: Pair) -> PlainStatus | _Task:
        """Return the status of a pair, or the task that is left to do."""
        if pair.data is None or pair.index is None:
            return PlainStatus.HALF
        key = pair.key
        known = attempt_at(self._target, key)
        if self._state is not None and known.data and known.index and self._state.find(known) is not None:
            return PlainStatus.THERE
        there = tuple(each.key for each in (known.data, known.index) if each is not None)
        if self._audit is None:
            return PlainStatus.THERE if len(there) == 2 else PlainStatus.MISSING
        if len(there) < 2:
            self._audit.record(
                Change(
                    action=ChangeAction.WRITE,
                    why=f"it is copied from {self._source.describe().location}",
                    ledger_id=key.ledger_id,
                    uuid=key.uuid,
                    key=key.data_key,
                )
            )
        return _Task(key=key, there=there)
