"""Objects of a tier → another tier, under the same keys, without records; what is there already is compared.

Nothing is overwritten that is not the same, and nothing of the source is deleted. So it goes on where it was broken
off, and can be made again for what was added meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.maintenance.relocate.byte_copies import copy_attempt, same_objects
from offload_core.maintenance.relocate.kept_entries import attempt_at, check_objects
from offload_core.maintenance.verify import VerifiedObjects
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.listing import Pair, stream_pairs
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.storage.executors import Executor, ThreadExecutor
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import FormatError, ObjectNotFoundError, OffloadError

_PAIRS_AT_ONCE = 2048


class PlainStatus(enum.Enum):
    """Status of a pair of objects."""

    MISSING = "missing"
    """It is not in the target, and would be copied."""
    COPIED = "copied"
    """It was copied, and every byte verified."""
    THERE = "there"
    """The same lies there already."""
    HALF = "half"
    """The source has only one of its two objects: an attempt that was broken off. It is left out."""
    CONFLICT = "conflict"
    """Another object lies in the target under its key. It is left as it is."""
    FAILED = "failed"
    """It could not be copied, or is not sound."""


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
    """A pair that is copied, or compared; `there` are the keys of those of its objects that the target has."""

    key: ObjectKey
    there: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairMaker:
    """Copies and verifies a pair of objects. It deletes nothing, and writes what is there already: so it may be tried
    several times, also at once."""

    source: Tier
    target: Tier

    def __call__(self, task: _Task) -> PlainStatus | OffloadError:
        """Return what became of it; what fails of one pair is a value."""
        try:
            return self._make(task)
        except ObjectNotFoundError as failure:
            return self._half_or(failure, task)
        except OffloadError as failure:
            return failure

    def _half_or(self, failure: OffloadError, task: _Task) -> PlainStatus | OffloadError:
        """Half, if the source's was deleted meanwhile; the failure, if it is the target where something is missing."""
        try:
            left = attempt_at(self.source, task.key)
        except OffloadError as other:
            return other
        return PlainStatus.HALF if left.data is None or left.index is None else failure

    def _make(self, task: _Task) -> PlainStatus:
        if not all(same_objects(self.source, self.target, each) for each in task.there):
            return PlainStatus.CONFLICT
        is_there = len(task.there) == 2
        if not is_there:
            copy_attempt(self.source, task.key, self.target, task.key, lambda _: None)
        check_objects(self.target, task.key)
        return PlainStatus.THERE if is_there else PlainStatus.COPIED


@dataclass(slots=True, kw_only=True)
class _CopyUnderWay:
    """A pair, and what is known of it by now; `status` None: an executor has it."""

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
    """Copies a tier's objects to another; iterate over it once for what becomes of each pair.

    Args:
        prefix: only objects whose keys begin so.
        wants: which topics'; told None for objects that name none.
        audit: each object is recorded there before it is written; None: nothing is written, it is a dry run.
        state: passes over what was verified in the target before and looks as it did.
        executor: who copies and verifies; None for a thread a core.

    Raises, when it is iterated over:
        StoreError: the source cannot be listed. What fails of a pair is its result.
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
        """Yield what becomes of each pair, in the order of keys."""
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
        """Yield what an executor is to do; each is recorded before it is given out."""
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
        """Return what is known of a pair already, or what is to be done."""
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
