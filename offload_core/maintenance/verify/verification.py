"""Verification of a tier: each object by itself, with `deep` to the last byte; then records; then the rest.

Findings are yielded as they are found. Memory does not depend on how many objects there are: they are listed and
inspected some at a time, and the facts about all of them are kept in a temporary file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice

from offload_core.maintenance.verify.deep import DeepResult, DeepTask, LedgerCount, check_task
from offload_core.maintenance.verify.findings import Code, Doubtful, Finding, Summary, of_error
from offload_core.maintenance.verify.pair_checks import Examined, try_examine
from offload_core.maintenance.verify.record_checks import (
    RECENT_MS,
    RecordCheck,
    StoredPair,
    VerificationSurvey,
    check_copies,
)
from offload_core.maintenance.verify.verified_objects import Sealable, Sealing, VerifiedObjects, is_sealable
from offload_core.metadata.catalogue import Records, TopicName, concurrently, read_each
from offload_core.metadata.catalogue.concurrency import AT_ONCE, inspect_batches
from offload_core.metadata.catalogue.listing import Pair, look_up, stream_attempts
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.storage.clock import system_now_ms
from offload_core.storage.executors import Executor, ThreadExecutor
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, OffloadError, StoreError

STALE_AFTER = timedelta(days=1)
"""Age of an upload that no process goes on with."""

INDEX_BYTES_AT_ONCE = 4 << 20
"""Bytes of indexes that are decoded together, one index at least; decoded, they are many times larger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnderWay:
    """Facts of an object that are kept while it is read.

    Attributes:
        is_whole: its data object has the length that its index has.
        is_compared: with the checksums beside it only.
    """

    examined: Examined
    data_bytes: int
    is_whole: bool
    is_compared: bool

    def is_sound(self, result: DeepResult) -> bool:
        """Return whether every byte of it was decoded, counted, and found to be right."""
        return self.is_whole and not self.is_compared and not result.findings


class Verification:
    """A verification of a tier: iterate over it once for its findings; `summary` is right at the end.

    Args:
        tier: what is verified.
        prefix: only objects whose keys begin so; with `records` the folder that they lie in.
        takes: selects topics; None stands for objects that name none.
        records: opens managed ledgers' records, after the tier was listed; None for none.
        deep: verify every byte of data objects.
        executor: reads data objects, with `deep`; None for a thread a core.
        by_checksums: with `deep`: objects that have checksums are compared with these, and not decoded.
        state: skips objects that were verified before; only with `deep`.
        sealing: gives checksums to sound objects that have none; only with `deep`.
        now_ms: the time, since 1970, UTC.
        listener: gets the summary after each object.

    Raises, when it is iterated over:
        StoreError: the tier cannot be listed, or the records cannot be read. Errors of single objects are in the
            summary.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        prefix: str = "",
        takes: Callable[[TopicName | None], bool] = lambda _: True,
        records: Callable[[], AbstractContextManager[Records]] | None = None,
        deep: bool = False,
        by_checksums: bool = False,
        executor: Executor | None = None,
        state: VerifiedObjects | None = None,
        sealing: Sealing | None = None,
        now_ms: Callable[[], int] = system_now_ms,
        listener: Callable[[Summary], None] = lambda _: None,
    ) -> None:
        self._tier = tier
        self._prefix = prefix
        self._takes = takes
        self._records = records
        self._deep = deep
        self._by_checksums = by_checksums
        self._executor = executor
        self._state = state
        self._sealing = sealing
        self._now_ms = now_ms
        self._listener = listener
        self._found: deque[Finding] = deque()
        self._under_way: dict[int, _UnderWay] = {}
        self._known: set[TopicName] = set()
        self.summary = Summary()

    def __iter__(self) -> Iterator[Finding]:
        """Yield the findings, as they are found."""
        for finding in self._all():
            self.summary.findings[finding.code] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        with VerificationSurvey() as survey:
            yield from self._objects(survey)
            if self._records is not None:
                yield from self._settled(self._recorded(survey, self._records))
            yield from self._settled(self._unrecorded(survey))
        yield from self._uploads()

    def _objects(self, survey: VerificationSurvey) -> Iterator[Finding]:
        if self._deep:
            executor = ThreadExecutor() if self._executor is None else self._executor
            for result in executor.run(partial(check_task, self._tier), self._tasks(survey)):
                self._take(survey, result)
                yield from self._drain()
            self._seal()
        else:
            for _ in self._surveyed(survey):
                yield from self._drain()
        yield from self._drain()

    def _drain(self) -> Iterator[Finding]:
        while self._found:
            yield self._found.popleft()

    def _surveyed(self, survey: VerificationSurvey) -> Iterator[tuple[int, Examined]]:
        """Yield the objects of the tier, each with its number in the survey; their findings go to `_found`."""
        for _, found in inspect_batches(self._listed(survey), self._examine):
            for examined in found:
                if isinstance(examined, OffloadError):
                    self.summary.fail(examined)
                elif examined is not None and self._takes(_topic_of(examined.managed_ledger)):
                    number = survey.add(examined)
                    self.summary.objects += 1
                    self.summary.object_bytes += examined.size_bytes
                    self.summary.with_checksums += examined.has_checksums
                    self._found.extend(_of_topic(examined, examined.findings))
                    self._listener(self.summary)
                    yield number, examined

    def _examine(self, pair: Pair) -> Examined | StoreError | None:
        return try_examine(self._tier, pair, keeps_index=self._deep)

    def _listed(self, survey: VerificationSurvey) -> Iterator[list[Pair]]:
        """Yield the pairs of the tier, some at a time; checksums beside nothing go to the survey."""
        for listed in _in_batches(stream_attempts(self._tier, self._prefix), self._deep):
            if self._takes(None):
                survey.add_lone_checksums([pair for pair in listed if pair.is_lone])
            yield [pair for pair in listed if not pair.is_lone]

    def _tasks(self, survey: VerificationSurvey) -> Iterator[DeepTask]:
        """Yield the objects that can be verified deeply, and were not before."""
        for number, examined in self._surveyed(survey):
            if examined.index is not None:
                yield from self._task(survey, number, examined)

    def _task(self, survey: VerificationSurvey, number: int, examined: Examined) -> Iterator[DeepTask]:
        pair, index = examined.pair, examined.index
        seals = self._sealing is not None and is_sealable(examined)
        if self._state is not None and not seals:
            counts = self._state.find(pair)
            if counts is not None:
                self.summary.skipped += 1
                _set_stops(survey, number, counts)
                return
        compares = self._by_checksums and examined.checksums is not None
        assert index is not None
        assert pair.data is not None
        self._under_way[number] = _UnderWay(
            examined=replace(examined, index=None, checksums=None, findings=[]),
            data_bytes=pair.data.size_bytes,
            is_whole=pair.data.size_bytes == index.data_length,
            is_compared=compares,
        )
        yield DeepTask.of(number, examined, by_checksums=compares, makes_checksums=seals)

    def _take(self, survey: VerificationSurvey, result: DeepResult) -> None:
        under_way = self._under_way.pop(result.number)
        pair = under_way.examined.pair
        self._found.extend(_of_topic(under_way.examined, result.findings))
        if result.is_gone:
            return
        if result.failure is not None:
            self.summary.fail(result.failure)
            return
        self.summary.deep_objects += 1
        self.summary.deep_bytes += under_way.data_bytes
        self.summary.compared_objects += under_way.is_compared
        self.summary.entries += sum(each.entries for each in result.counts)
        self.summary.unchecked_entries += sum(each.unchecked for each in result.counts)
        self._listener(self.summary)
        _set_stops(survey, result.number, result.counts)
        if self._sealing is not None and result.made is not None:
            self._sealing.add(Sealable(under_way.examined, result.made, result.counts))
            if self._sealing.is_full:
                self._seal()
        elif self._state is not None and under_way.is_sound(result):
            self._state.add(pair, result.counts)

    def _seal(self) -> None:
        if self._sealing is None:
            return
        for sealed in self._sealing.settle():
            if isinstance(sealed, OffloadError):
                self.summary.fail(sealed)
                continue
            self.summary.sealed += sealed.pair is not None
            if self._state is not None and sealed.pair is not None:
                self._state.add(sealed.pair, sealed.counts)

    def _recorded(
        self, survey: VerificationSurvey, opened: Callable[[], AbstractContextManager[Records]]
    ) -> Iterator[Finding | Doubtful]:
        folder = f"{self._prefix.removesuffix('/')}/" if self._prefix else ""
        check = RecordCheck(tier=self._tier, survey=survey, folder=folder, now_ms=self._now_ms)
        with opened() as records:
            for topic, info in read_each(records, filter(self._takes, records.topics())):
                if isinstance(info, FormatError):
                    yield of_error(Code.RECORD_UNREADABLE, info, topic=str(topic))
                    continue
                self._known.add(topic)
                self.summary.topics += 1
                self.summary.ledgers += len(info.ledgers)
                try:
                    yield from check.check(topic, info)
                except FormatError as error:
                    yield of_error(Code.RECORD_UNREADABLE, error, topic=str(topic))

    def _unrecorded(self, survey: VerificationSurvey) -> Iterator[Finding | Doubtful]:
        clusters = survey.clusters_of_recorded()

        def is_orphan(stored: StoredPair) -> bool:
            if stored.managed_ledger is None or not self._known:
                return False
            ours = stored.cluster is None or stored.cluster in clusters
            return ours and topic_of_managed_ledger(stored.managed_ledger) in self._known

        recent = (self._now_ms() - RECENT_MS) / 1000
        for stored in survey.unrecorded():
            data, index = stored.key.data_key, stored.key.index_key
            if not is_orphan(stored):
                self.summary.unknown += self._records is not None
            elif not stored.is_placeholder or (stored.is_sound and not stored.is_spared):
                yield Doubtful(finding=_about(Code.ORPHAN, stored), present=(data, index))
                continue
            elif stored.is_sound or stored.modified_at >= recent:
                self.summary.stand_ins += 1
                continue
            if not stored.has_index:
                yield Doubtful(finding=_about(Code.NO_INDEX, stored), absent=(index,), present=(data,))
            elif not stored.has_data:
                yield Doubtful(finding=_about(Code.NO_DATA, stored), absent=(data,), present=(index,))
        for key, checksums in survey.lone_checksums():
            finding = Finding(code=Code.CHECKSUMS_ORPHAN, key=checksums)
            yield Doubtful(finding=finding, absent=(key.data_key, key.index_key), present=(checksums,))
        copies = survey.unrecorded_ledgers()
        yield from check_copies((copy for copy in copies if not is_orphan(copy[0])), survey.has_broken)

    def _settled(self, found: Iterable[Finding | Doubtful]) -> Iterator[Finding]:
        """Yield the findings that still hold, some looked up at a time."""
        found = iter(found)
        while some := list(islice(found, AT_ONCE)):
            doubtful = [each for each in some if isinstance(each, Doubtful)]
            held = dict(zip(map(id, doubtful), concurrently(self._holds, doubtful), strict=True))
            for each in some:
                if isinstance(each, Finding):
                    yield each
                    continue
                holds = held[id(each)]
                if isinstance(holds, OffloadError):
                    self.summary.fail(holds)
                elif holds:
                    yield each.finding

    def _holds(self, doubtful: Doubtful) -> bool | OffloadError:
        try:
            if any(self._is_there(key) for key in doubtful.absent):
                return False
            return not doubtful.present or any(self._is_there(key) for key in doubtful.present)
        except StoreError as error:
            return error.at(key=doubtful.finding.key)

    def _is_there(self, key: str) -> bool:
        try:
            return look_up(self._tier, key) is not None
        except FormatError:
            return True  # its sidecar is damaged

    def _uploads(self) -> Iterator[Finding]:
        if not (self._tier.describe().capabilities.stale_uploads and self._takes(None)):
            return
        oldest = datetime.fromtimestamp(self._now_ms() / 1000, timezone.utc) - STALE_AFTER
        for stale in self._tier.list_uploads(self._prefix):
            if stale.started_at < oldest:
                yield Finding(
                    code=Code.STALE_UPLOAD,
                    key=stale.upload.key,
                    found=f"upload {stale.upload.upload_id}, begun {stale.started_at:%Y-%m-%d %H:%MZ}",
                )


def _in_batches(pairs: Iterator[Pair], deep: bool) -> Iterator[list[Pair]]:
    """Yield some at a time: not too many, and with `deep`, where indexes are kept, not too many bytes of these."""
    some: list[Pair] = []
    total = 0
    for pair in pairs:
        size = pair.index.size_bytes if deep and pair.index is not None else 0
        if len(some) == AT_ONCE or (some and total + size > INDEX_BYTES_AT_ONCE):
            yield some
            some, total = [], 0
        some.append(pair)
        total += size
    if some:
        yield some


def _set_stops(survey: VerificationSurvey, number: int, counts: Sequence[LedgerCount]) -> None:
    for count in counts:
        if count.stop_entry_id is not None:
            survey.set_stop(number, count.ledger_id, count.stop_entry_id)


def _about(code: Code, stored: StoredPair) -> Finding:
    topic = _topic_of(stored.managed_ledger)
    named = None if topic is None else str(topic)
    return Finding(code=code, topic=named, key=stored.key.data_key, ledger_id=stored.key.ledger_id)


def _topic_of(managed_ledger: str | None) -> TopicName | None:
    return None if managed_ledger is None else topic_of_managed_ledger(managed_ledger)


def _of_topic(examined: Examined, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the findings of an object with its topic."""
    topic = _topic_of(examined.managed_ledger)
    return (finding if topic is None else replace(finding, topic=str(topic)) for finding in findings)
