"""Verifying a tier: each object by itself, with `deep` to the last byte; then what records say; then what is left.

What is found is given out as it is found. Memory does not depend on how many objects there are: they are listed and
looked at some at a time, and what is known of all of them is kept in a temporary file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice

from offload_core.catalogue import Records, TopicName, concurrently
from offload_core.catalogue.listing import Pair, stream_pairs
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.export.executors import Executor, ThreadExecutor
from offload_core.metadata import ManagedLedgerInfo
from offload_core.offload.clock import system_now_ms
from offload_core.tier import Tier
from offload_core.verify.codes import Code
from offload_core.verify.copies import check_copies
from offload_core.verify.deep import DeepCheck, DeepResult, DeepTask, LedgerCount
from offload_core.verify.findings import Doubtful, Finding, of_error
from offload_core.verify.objects import Examined, examine
from offload_core.verify.recorded import RecordCheck
from offload_core.verify.severity import Severity
from offload_core.verify.state import VerifiedObjects
from offload_core.verify.survey import Survey, Surveyed
from offload_hooks.errors import FormatError, ObjectNotFoundError, OffloadError, StoreError

STALE_AFTER = timedelta(days=1)
"""An upload that is older is under way no more."""

_PAIRS_AT_ONCE = 2048
_TOPICS_AT_ONCE = 256
_FAILURES_KEPT = 100


@dataclass(slots=True, kw_only=True)
class Summary:
    """What was looked at, and what came of it.

    Attributes:
        objects: pairs of data and index objects; `object_bytes` all their bytes.
        ledgers: of records, those that were compared.
        deep_objects: data objects that were verified to the last byte now, of `deep_bytes`; `skipped` those before.
        entries: that were counted in these; `unchecked_entries` those without a checksum.
        unknown: objects that no record names, which may be another cluster's: nothing is said of them.
        findings: how many of each code.
        failed: objects that could not be verified; `failures` why, of the first.
    """

    objects: int = 0
    object_bytes: int = 0
    topics: int = 0
    ledgers: int = 0
    deep_objects: int = 0
    deep_bytes: int = 0
    skipped: int = 0
    entries: int = 0
    unchecked_entries: int = 0
    unknown: int = 0
    findings: Counter[Code] = field(default_factory=Counter)
    failed: int = 0
    failures: list[OffloadError] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """How many findings are so bad."""
        return sum(count for code, count in self.findings.items() if code.severity is severity)

    def fail(self, error: OffloadError) -> None:
        """Something could not be verified."""
        self.failed += 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(error)


class Verification:
    """A verification of a tier: iterate over it once for its findings; `summary` is right in the end.

    Args:
        prefix: only objects whose keys begin so; with `records` the folder that they lie in.
        records: opens managed ledgers' records, after the tier was listed; None for none.
        deep: verify every byte of data objects.
        executor: who does that; None for a thread a core.
        state: passes over what was verified before; only with `deep`.
        now_ms: the time, since 1970, UTC.
        listener: told after each object how many there were.

    Raises, when it is iterated over:
        StoreError: the tier cannot be listed, or the records cannot be read. What fails of a single object is in the
            summary, and the others are verified on.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        prefix: str = "",
        records: Callable[[], AbstractContextManager[Records]] | None = None,
        deep: bool = False,
        executor: Executor | None = None,
        state: VerifiedObjects | None = None,
        now_ms: Callable[[], int] = system_now_ms,
        listener: Callable[[Summary], None] = lambda _: None,
    ) -> None:
        self._tier = tier
        self._prefix = prefix
        self._records = records
        self._deep = deep
        self._executor = ThreadExecutor() if executor is None else executor
        self._state = state
        self._now_ms = now_ms
        self._listener = listener
        self._found: deque[Finding] = deque()
        self._under_way: dict[int, Pair] = {}
        self._known: set[TopicName] = set()
        self.summary = Summary()

    def __iter__(self) -> Iterator[Finding]:
        """The findings, as they are found."""
        for finding in self._all():
            self.summary.findings[finding.code] += 1
            yield finding

    def _all(self) -> Iterator[Finding]:
        with Survey() as survey:
            yield from self._objects(survey)
            if self._records is not None:
                yield from self._settled(self._recorded(survey, self._records))
            yield from self._settled(self._unrecorded(survey))
        yield from self._uploads()

    # --- objects -------------------------------------------------------------------------------

    def _objects(self, survey: Survey) -> Iterator[Finding]:
        if self._deep:
            for result in self._executor.run(DeepCheck(tier=self._tier), self._tasks(survey)):
                self._take(survey, result)
                yield from self._drain()
        else:
            for _ in self._surveyed(survey):
                yield from self._drain()
        yield from self._drain()

    def _drain(self) -> Iterator[Finding]:
        while self._found:
            yield self._found.popleft()

    def _surveyed(self, survey: Survey) -> Iterator[tuple[int, Examined]]:
        """The objects of the tier, each in the survey, with its number there, and its findings in `_found`."""
        pairs = stream_pairs(self._tier, self._prefix)
        while some := list(islice(pairs, _PAIRS_AT_ONCE)):
            for examined in concurrently(self._examine, some):
                if isinstance(examined, OffloadError):
                    self.summary.fail(examined)
                elif examined is not None:
                    number = survey.add(examined)
                    self.summary.objects += 1
                    self.summary.object_bytes += examined.size_bytes
                    self._found.extend(examined.findings)
                    self._listener(self.summary)
                    yield number, examined

    def _tasks(self, survey: Survey) -> Iterator[DeepTask]:
        """Those of the objects that can be verified deeply, and were not before."""
        for number, examined in self._surveyed(survey):
            if examined.index is not None:
                yield from self._task(survey, number, examined)

    def _examine(self, pair: Pair) -> Examined | OffloadError | None:
        try:
            examined = examine(self._tier, pair)
        except StoreError as error:
            return error.at(key=pair.key.data_key)
        if examined is not None and not self._deep:
            examined.index = None  # it may be large, and is not needed any more
        return examined

    def _task(self, survey: Survey, number: int, examined: Examined) -> Iterator[DeepTask]:
        pair = examined.pair
        if self._state is not None:
            counts = self._state.find(pair)
            if counts is not None:
                self.summary.skipped += 1
                _set_stops(survey, number, counts)
                return
        assert examined.index is not None
        assert pair.data is not None
        self._under_way[number] = pair
        yield DeepTask(
            number=number,
            key=pair.key,
            index=examined.index,
            data_bytes=pair.data.size_bytes,
            is_filtered=examined.is_filtered,
            has_gaps=examined.has_gaps,
            lost=0 if examined.lost is None else examined.lost.count,
            checksum_key=pair.data_checksums.key if pair.data_checksums else None,
        )

    def _take(self, survey: Survey, result: DeepResult) -> None:
        pair = self._under_way.pop(result.task.number)
        self._found.extend(result.findings)
        if result.is_gone:
            return
        if result.failure is not None:
            self.summary.fail(result.failure)
            return
        self.summary.deep_objects += 1
        self.summary.deep_bytes += result.task.data_bytes
        self.summary.entries += sum(each.entries for each in result.counts)
        self.summary.unchecked_entries += sum(each.unchecked for each in result.counts)
        self._listener(self.summary)
        _set_stops(survey, result.task.number, result.counts)
        is_whole = result.task.data_bytes == result.task.index.data_length
        if self._state is not None and is_whole and not result.findings:
            self._state.add(pair, result.counts)

    # --- records -------------------------------------------------------------------------------

    def _recorded(
        self, survey: Survey, opened: Callable[[], AbstractContextManager[Records]]
    ) -> Iterator[Finding | Doubtful]:
        folder = f"{self._prefix.removesuffix('/')}/" if self._prefix else ""
        check = RecordCheck(tier=self._tier, survey=survey, folder=folder, now_ms=self._now_ms)
        with opened() as records:
            topics = iter(records.topics())
            while some := list(islice(topics, _TOPICS_AT_ONCE)):
                for topic, info in self._read(records, some):
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

    def _read(
        self, records: Records, topics: Sequence[TopicName]
    ) -> Iterator[tuple[TopicName, ManagedLedgerInfo | FormatError]]:
        """The records of these topics; one by one where one of them cannot be parsed."""
        try:
            yield from records.read(topics).items()
            return
        except FormatError as error:
            if len(topics) == 1:
                yield topics[0], error
                return
        for topic in topics:
            yield from self._read(records, [topic])

    # --- what no record names ------------------------------------------------------------------

    def _unrecorded(self, survey: Survey) -> Iterator[Finding | Doubtful]:
        clusters = survey.clusters_of_recorded()

        def is_orphan(stored: Surveyed) -> bool:
            if stored.managed_ledger is None or not self._known:
                return False
            ours = stored.cluster is None or stored.cluster in clusters
            return ours and topic_of_managed_ledger(stored.managed_ledger) in self._known

        for stored in survey.unrecorded():
            data, index = stored.key.data_key, stored.key.index_key
            if is_orphan(stored):
                yield Doubtful(finding=_about(Code.ORPHAN, stored), present=(data, index))
                continue
            self.summary.unknown += self._records is not None
            if not stored.has_index:
                yield Doubtful(finding=_about(Code.NO_INDEX, stored), absent=(index,), present=(data,))
            elif not stored.has_data:
                yield Doubtful(finding=_about(Code.NO_DATA, stored), absent=(data,), present=(index,))
        copies = survey.unrecorded_ledgers()
        yield from check_copies((copy for copy in copies if not is_orphan(copy[0])), survey.has_broken)

    # --- what may have changed meanwhile -------------------------------------------------------

    def _settled(self, found: Iterable[Finding | Doubtful]) -> Iterator[Finding]:
        """The findings without those that do not hold any more, some looked up at a time."""
        found = iter(found)
        while some := list(islice(found, _PAIRS_AT_ONCE)):
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
            self._tier.stat(key)
        except ObjectNotFoundError:
            return False
        except FormatError:
            return True  # its sidecar is damaged
        return True

    def _uploads(self) -> Iterator[Finding]:
        if not self._tier.describe().capabilities.stale_uploads:
            return
        oldest = datetime.fromtimestamp(self._now_ms() / 1000, UTC) - STALE_AFTER
        for stale in self._tier.list_uploads(self._prefix):
            if stale.started_at < oldest:
                yield Finding(
                    code=Code.STALE_UPLOAD,
                    what=Code.STALE_UPLOAD.meaning,
                    key=stale.upload.key,
                    found=f"upload {stale.upload.upload_id}, begun {stale.started_at:%Y-%m-%d %H:%MZ}",
                )


def _set_stops(survey: Survey, number: int, counts: Sequence[LedgerCount]) -> None:
    for count in counts:
        if count.stop_entry_id is not None:
            survey.set_stop(number, count.ledger_id, count.stop_entry_id)


def _about(code: Code, stored: Surveyed) -> Finding:
    topic = None if stored.managed_ledger is None else str(topic_of_managed_ledger(stored.managed_ledger))
    return Finding(
        code=code, what=code.meaning, topic=topic, key=stored.key.data_key, ledger_id=stored.key.ledger_id
    )
