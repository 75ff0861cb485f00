"""Move copies, some at once: write each down, copy, verify, switch its record; later, delete the old copy.

    begin     write the attempt down, then write its objects
    verify    every byte of the new copy, and its entries against those of the old one
    switch    from now on the new copy is read; readers that have the old one open go on with that
    delete    if asked for, when the grace is over: delete the old copy's objects, then forget it

A crash between any two lines leaves the old copy as it was, or the new one in its place. Objects of an attempt that it
leaves are deleted by the next call, when the lease has expired. A move that fails does not end the others.

Executors read and write objects: an order has all they need of the record, and the tiers are opened by their names. The
caller switches the record. An order is carried out once. A second attempt at it (of a task that Spark gives to another
executor) writes and deletes nothing: the first executor may still write, and delete its objects when that fails, under
the same keys. See docs/adr/0045-relocate-on-executors.md.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.relocate.byte_copies import CopiedBytes, copy_attempt
from offload_core.maintenance.relocate.copy_filters import AbortedEntries, CopyFilter, CopyFilters
from offload_core.maintenance.relocate.entry_copies import (
    DEFAULT_BLOCK_BYTES,
    Check,
    CopiedEntries,
    EntryCopies,
    check_opens,
)
from offload_core.maintenance.relocate.planning import How, Move, TopicPlan
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.copy_check import check_coverage, check_stored, is_deletable_for
from offload_core.metadata.catalogue.known_tiers import KnownTiers, is_same_place, place_text, tier_record
from offload_core.metadata.catalogue.recorded_copies import RecordedCopy, other_copy_key, recorded_copies
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    OtherRole,
    read_copies,
)
from offload_core.reading.read_handles import ReadMemory
from offload_core.storage.executors import Executor, is_second_try
from offload_core.storage.tier import Tier
from offload_core.storage.tier.registry import PluginSpec
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_core.writing.managed_ledger.copy_registry import CopyRegistry, as_switched, delete_copy
from offload_hooks.errors import (
    AttemptError,
    DataLossError,
    LiveAttemptError,
    OffloadError,
    OptionError,
    OutcomeUnknownError,
    UnknownTopicError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """A new copy that is to be made.

    Attributes:
        uuid, driver: the new copy's, and its place, as they are written down.
        ledgers: the records of its ledgers.
        old_keys: keys of the old copy, if it is copied byte by byte: the first that has an index.
        marks: user metadata of the new copy, beside that of the old one.
        filter: what its entries go through; None for nothing.
    """

    move: Move
    uuid: UUID
    driver: DriverMetadata
    ledgers: tuple[LedgerRecord, ...]
    old_keys: tuple[ObjectKey, ...]
    marks: Mapping[str, str]
    filter: CopyFilter | None = None

    @property
    def copy(self) -> OtherCopy:
        """The new copy, as its record names it."""
        return OtherCopy(
            uuid=self.uuid,
            form=self.move.form,
            driver=self.driver,
            since_ms=0,
            segment=self.move.segment,
            ledger_ids=self.move.ledger_ids,
        )

    @property
    def key(self) -> ObjectKey:
        """The key of its data object."""
        return other_copy_key(self.move.topic, self.copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new copy that was verified.

    Attributes:
        size_bytes: of its objects.
        read_bytes: bytes that were read of the source.
        filters: by ledger, the filter records that were written anew.
        left_out: entries that a filter left out now.
    """

    size_bytes: int
    read_bytes: int
    filters: Mapping[int, str]
    left_out: int = 0


class CopyMaker:
    """Makes new copies; picklable where the tiers are, and calls may come from many threads at once.

    Args:
        source, target: neither is closed.
        block_bytes: of objects that are written in another format.

    Attributes:
        tier: both, read together.
    """

    def __init__(self, source: Tier, target: Tier, block_bytes: int) -> None:
        self._given = source, target, block_bytes
        self._source = source
        self._target = target
        self._both = KnownTiers(target, [source], elsewhere=lambda _: source)
        from_source = KnownTiers(source, elsewhere=lambda _: source)
        self.tier = source.with_others([target])
        self._entries = EntryCopies(from_source, target, block_bytes=block_bytes, memory=ReadMemory())

    def __reduce__(self) -> tuple[Any, ...]:
        return CopyMaker, self._given

    def __call__(self, order: CopyOrder) -> Made | OffloadError:
        """Make a copy as `make`; an error is returned."""
        if is_second_try():
            return OutcomeUnknownError(
                "a worker was lost while it made a copy, and what it wrote is not known",
                key=order.key.data_key,
                ledger_id=order.move.ledger_ids[0],
                hint="The old copy is read. The next call deletes the rest of the new one, and makes it anew.",
            )
        try:
            return self.make(order, lambda _: None)
        except OffloadError as error:
            return error

    def make(self, order: CopyOrder, check: Check) -> Made:
        """Copy, and compare all of it with the old copy.

        Raises:
            DataLossError: the new copy differs.
            StoreError, FormatError: of either tier. Objects of the new copy may be left.
        """
        read_bytes = 0

        def count(size: int) -> None:
            nonlocal read_bytes
            check(size)
            read_bytes += size

        left_out = None if order.filter is None else order.filter.decide(self.tier)
        copied, filters = self._copy(order, count, left_out)
        copied.verify(self._target, order.key)
        info = ManagedLedgerInfo(ledgers=order.ledgers)
        switched = as_switched(info, order.copy, filters)
        check_opens(self._both, order.move.name, switched, order.move.ledger_ids)
        return Made(
            size_bytes=copied.size_bytes,
            read_bytes=read_bytes,
            filters=filters,
            left_out=0 if left_out is None else left_out.count,
        )

    def _copy(
        self, order: CopyOrder, check: Check, left_out: AbortedEntries | None
    ) -> tuple[CopiedBytes | CopiedEntries, dict[int, str]]:
        """Return the copy, and by ledger the filter records."""
        move = order.move
        if move.how is How.BYTES:
            old = order.old_keys
            return copy_attempt(self._source, old, self._target, order.key, check, order.marks), {}
        copied = self._entries.copy(
            move.name, order.ledgers, order.uuid, move.format, check, order.marks, left_out
        )
        return copied, {each: record.pack(short=True) for each, record in copied.filters.items()}


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a move.

    Attributes:
        uuid: the new copy's; None if it failed.
        size_bytes: of its objects.
        left_out: entries that the filter left out; None if there was none.
        error: why it failed.
    """

    move: Move
    uuid: UUID | None = None
    size_bytes: int = 0
    left_out: int | None = None
    error: OffloadError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A move that is written down, and under way.

    Attributes:
        order: for the process that makes the new copy.
        check: raises if another process took it over.
    """

    order: CopyOrder
    check: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldCopies:
    """Replaced copies of a topic that were deleted.

    Attributes:
        error: why others stay; `DataLossError` if the copy that took their place is not whole.
    """

    topic: TopicName
    deleted: tuple[OtherCopy, ...]
    error: OffloadError | None = None


class Mover:
    """Moves copies from one tier to another, or within one. Calls may come from many threads at once.

    Args:
        registry: where copies are written down.
        source, target: the tiers; neither is closed.
        audit: each change is recorded there before it is made.
        now_ms: the time, in ms since 1970, UTC.
        block_bytes: of objects that are written in another format.
        listener: gets the number of bytes as they are read; an error that it raises ends the move.

    Attributes:
        maker: reads and writes the objects of moves that are begun, in any process.
    """

    def __init__(
        self,
        registry: CopyRegistry,
        source: Tier,
        target: Tier,
        audit: AuditLog,
        *,
        now_ms: Callable[[], int],
        block_bytes: int = DEFAULT_BLOCK_BYTES,
        listener: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._registry = registry
        self._source = source
        self._target = target
        self._audit = audit
        self._now_ms = now_ms
        self._listener = listener
        self._both = KnownTiers(target, [source], elsewhere=lambda _: source)
        self.maker = CopyMaker(source, target, block_bytes)
        self._filters = CopyFilters(self.maker.tier)

    def move(self, move: Move) -> Outcome:
        """Make a move; when it returns, the new copy is verified, and the one that is read.

        Raises:
            LiveAttemptError: another process works on a new copy of these ledgers; nothing was changed.
            AttemptError: the ledgers have other copies by now, or another attempt, or are to be deleted.
            DataLossError: the new copy is not what the old one was.
            UnresolvedTransactionError: it is to be filtered, and a transaction before its end is open.
            StoreError, FormatError: of either tier or of where it is written down.
        """
        with self.begin(move) as begun:

            def watch(size: int) -> None:
                begun.check()
                self._listener(size)

            with self._given_up(begun.order):
                made = self.maker.make(begun.order, watch)
                self._switch(begun, made)
        return _moved(begun.order, made)

    @contextmanager
    def begin(self, move: Move) -> Iterator[Begun]:
        """Write down a new copy, which `maker` is to make in any process. In the block it is this process's.

        Errors as of `move`, and those of ledgers that were deleted meanwhile.
        """
        uuid, driver = uuid4(), tier_record(self._target, move.format)
        info = self._registry.info(move.name)
        old = _by_uuid(info, move)
        recorded = old[move.replaces[0]]
        old_keys = [recorded.key] if recorded.mapfile_key is None else [recorded.key, recorded.mapfile_key]
        order = CopyOrder(
            move=move,
            uuid=uuid,
            driver=driver,
            ledgers=(),
            old_keys=tuple(old_keys),
            marks=dict(self._registry.marks),
            filter=self._filter_of(move, info),
        )
        self._audit.record(
            Change(
                action=ChangeAction.WRITE,
                why=f"a copy is moved to {place_text(driver)}",
                managed_ledger=move.name,
                ledger_id=move.ledger_ids[0],
                uuid=uuid,
                key=order.key.data_key,
                before=_places(old),
            )
        )
        attempt = self._registry.attempt(move.name, order.copy, move.replaces, "a copy is moved", self._audit)
        with attempt as check:
            with self._given_up(order):
                ledgers = _ledgers(self._registry.info(move.name), move)
            yield Begun(order=replace(order, ledgers=ledgers), check=check)

    def _filter_of(self, move: Move, info: ManagedLedgerInfo) -> CopyFilter | None:
        if move.filter is None:
            return None
        (ledger,) = _ledgers(info, move)
        return self._filters.of(move.topic, ledger, info, move.filter)

    def end(self, begun: Begun, made: Made | OffloadError) -> Outcome:
        """End a move with the result of `maker`: from now on the new copy is read, or it is deleted.

        Errors as of `move`.
        """
        with self._given_up(begun.order):
            if isinstance(made, OffloadError):
                raise made
            self._listener(made.read_bytes)
            self._switch(begun, made)
        return _moved(begun.order, made)

    def _switch(self, begun: Begun, made: Made) -> None:
        order, move = begun.order, begun.order.move
        begun.check()
        as_switched(self._registry.info(move.name), order.copy, made.filters)
        self._registry.switch(
            move.name,
            order.copy,
            move.replaces,
            "a copy was moved, and is verified"
            if order.filter is None
            else f"a copy went through the filter transactions, which left out {made.left_out} entries",
            self._audit,
            made.filters,
        )

    @contextmanager
    def _given_up(self, order: CopyOrder) -> Iterator[None]:
        """End the attempt at an error in the block, and delete its objects."""
        try:
            yield
        except OutcomeUnknownError:
            raise  # it may be the one that is read, or still be written: nothing is deleted on a guess
        except Exception as error:
            self._give_up(order, error)
            raise

    def clean(self, topic: TopicName) -> int:
        """Delete the objects of attempts whose leases have expired; return how many attempts.

        Errors of one whose lease is held, or that lies elsewhere, are logged, and it stays.
        """
        name, cleaned = managed_ledger_of_topic(topic), 0
        try:
            others = self._registry.others(name)
        except UnknownTopicError:
            return 0  # it was deleted meanwhile
        for copy in others:
            if copy.role is not OtherRole.REPLACEMENT or not self._is_ours(copy.driver):
                continue
            why = "an attempt to move a copy was broken off"
            try:
                self._registry.abandon(name, copy, why, self._audit)
            except LiveAttemptError as error:
                _log.warning("%s: %s", topic, error)
                continue
            self._delete(topic, copy, why)
            cleaned += 1
        return cleaned

    def replaced(self, topic: TopicName, grace_ms: int) -> list[OtherCopy]:
        """The copies in these tiers that were replaced before the lag, and that no ledger reads or lacks."""
        return [copy for copy, is_held in self._due(topic, grace_ms) if is_held]

    def delete_replaced(self, topic: TopicName, grace_ms: int) -> OldCopies:
        """Delete the objects of copies that were replaced for so long, as far as what took their place is whole.

        What a tier, the record or the audit log refuse is an error in the value; it can be called again.
        """
        deleted, left = list[OtherCopy](), list[OtherCopy]()
        try:
            for copy, is_held in self._due(topic, grace_ms):
                if not is_held:
                    left.append(copy)
                    continue
                self._delete(topic, copy, "another copy took its place")
                deleted.append(copy)
        except OffloadError as error:
            return OldCopies(topic=topic, deleted=tuple(deleted), error=error)
        if not left:
            return OldCopies(topic=topic, deleted=tuple(deleted))
        lost = DataLossError(
            f"copies of {topic} stay that were replaced: what took their place is not there as a whole",
            ledger_id=left[0].ledger_ids[0],
            found=", ".join(str(copy.uuid) for copy in left),
            hint="`offload verify` tells what is wrong with the copy that is read.",
        )
        return OldCopies(topic=topic, deleted=tuple(deleted), error=lost)

    def _due(self, topic: TopicName, grace_ms: int) -> Iterator[tuple[OtherCopy, bool]]:
        """The copies that were replaced for so long; and whether what is read now has all of it, and is here."""
        name = managed_ledger_of_topic(topic)
        info, before = self._registry.info(name), self._now_ms() - grace_ms
        needed = read_copies(info)
        for copy in self._registry.others(name):
            if copy.role is not OtherRole.REPLACED or copy.since_ms > before or copy.uuid in needed:
                continue
            if self._is_ours(copy.driver):
                ledgers = [info.ledger(ledger_id) for ledger_id in copy.ledger_ids]
                yield copy, all(ledger is None or self._is_held(topic, ledger) for ledger in ledgers)

    def _is_held(self, topic: TopicName, ledger: LedgerRecord) -> bool:
        """Return True if the current copies of a ledger are here, and match its record."""
        if ledger.is_marked_for_deletion:
            return True
        if not ledger.has_hot_copy and check_coverage(ledger) is not None:
            return False
        return all(
            is_deletable_for(check_stored(self._both.find(copy.driver), ledger, copy))
            for copy in recorded_copies(topic, ledger)
            if copy.unfinished is None
        )

    def _give_up(self, order: CopyOrder, error: Exception) -> None:
        """Clean up after a move that failed; the next call cleans the rest."""
        name, copy = order.move.name, order.copy
        why = f"a copy could not be moved: {type(error).__name__}"
        try:
            if self._registry.give_up(name, copy, why, self._audit):
                self._delete(order.move.topic, copy, why)
        except OffloadError as failure:
            _log.warning("attempt %s of %s is not cleaned up yet: %s", order.uuid, name, failure)

    def _delete(self, topic: TopicName, copy: OtherCopy, why: str) -> None:
        name = managed_ledger_of_topic(topic)
        delete_copy(self._both.find(copy.driver), name, copy, self._audit, why)
        self._registry.forget(name, copy, why, self._audit)

    def _is_ours(self, driver: DriverMetadata) -> bool:
        return any(is_same_place(tier_record(tier), driver) for tier in (self._source, self._target))


def _moved(order: CopyOrder, made: Made) -> Outcome:
    left_out = None if order.filter is None else made.left_out
    return Outcome(move=order.move, uuid=order.uuid, size_bytes=made.size_bytes, left_out=left_out)


def _ledgers(info: ManagedLedgerInfo, move: Move) -> tuple[LedgerRecord, ...]:
    ledgers = [info.ledger(ledger_id) for ledger_id in move.ledger_ids]
    present = tuple(ledger for ledger in ledgers if ledger is not None)
    if len(present) < len(ledgers):
        raise AttemptError("a ledger was deleted meanwhile", ledger_id=move.ledger_ids[0])
    return present


def _by_uuid(info: ManagedLedgerInfo, move: Move) -> dict[UUID, RecordedCopy]:
    found: dict[UUID, RecordedCopy] = {}
    for ledger_id in move.ledger_ids:
        ledger = info.ledger(ledger_id)
        for copy in () if ledger is None else recorded_copies(move.topic, ledger):
            if copy.key.uuid in move.replaces:
                found.setdefault(copy.key.uuid, copy)
    missing = [uuid for uuid in move.replaces if uuid not in found]
    if missing:
        raise AttemptError(
            "the ledgers have other copies by now", ledger_id=move.ledger_ids[0], expected=missing[0]
        )
    return found


def _places(old: Mapping[UUID, RecordedCopy]) -> str:
    return ", ".join(
        f"{uuid} in {'the source' if copy.driver is None else place_text(copy.driver)}"
        for uuid, copy in old.items()
    )


DEFAULT_PARALLEL = 4


def make_moves(
    mover: Mover,
    plans: Sequence[TopicPlan],
    *,
    parallel: int = DEFAULT_PARALLEL,
    executor: Executor | None = None,
) -> Iterator[Outcome]:
    """Make all moves of these plans, `parallel` of them at once; yield their outcomes as they come.

    Args:
        executor: makes the new copies, instead of threads. This process writes them down: before an order is given out,
            and when its result comes back.

    Raises:
        StoreError, FormatError: earlier attempts cannot be read or deleted.
    """
    for plan in plans:
        mover.clean(plan.topic)
    waiting = [move for plan in plans for move in plan.moves]
    if executor is not None:
        while waiting:
            yield from _Round(mover, executor, waiting)
        return
    with ThreadPoolExecutor(parallel, thread_name_prefix="offload-move") as pool:
        under_way: dict[Future[Outcome], Move] = {}
        try:
            while True:
                while len(under_way) < parallel and (move := _next(waiting, under_way.values())) is not None:
                    under_way[pool.submit(_outcome, move, partial(mover.move, move))] = move
                if not under_way:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for each in done:
                    del under_way[each]
                    yield each.result()
        finally:
            for each in under_way:
                each.cancel()


class _Round:
    """Moves by an executor, until none is left of ledgers that no move under way has; takes them out of `waiting`."""

    def __init__(self, mover: Mover, executor: Executor, waiting: list[Move]) -> None:
        self._mover = mover
        self._executor = executor
        self._waiting = waiting
        self._under_way: deque[tuple[Begun, ExitStack]] = deque()
        self._not_begun: list[Outcome] = []

    def __iter__(self) -> Iterator[Outcome]:
        """Yield the outcomes."""
        try:
            for made in self._executor.run(self._mover.maker, self._orders()):
                yield self._end(made)
            yield from self._not_begun
        finally:  # the next call cleans up the moves under way, as when this process is killed
            for _, held in self._under_way:
                held.close()

    def _orders(self) -> Iterator[CopyOrder]:
        """Yield orders, each written down before it is given out."""
        while (move := _next(self._waiting, [each.order.move for each, _ in self._under_way])) is not None:
            with ExitStack() as stack:
                try:
                    begun = stack.enter_context(self._mover.begin(move))
                except OffloadError as error:
                    self._not_begun.append(Outcome(move=move, error=error))
                    continue
                self._under_way.append((begun, stack.pop_all()))
            yield begun.order

    def _end(self, made: Made | OffloadError) -> Outcome:
        begun, held = self._under_way.popleft()
        with held:
            return _outcome(begun.order.move, partial(self._mover.end, begun, made))


def _next(waiting: list[Move], under_way: Collection[Move]) -> Move | None:
    """Take the first move of ledgers that no move under way has: a ledger has one at a time."""
    taken = {(move.topic, ledger_id) for move in under_way for ledger_id in move.ledger_ids}
    for number, move in enumerate(waiting):
        if taken.isdisjoint((move.topic, ledger_id) for ledger_id in move.ledger_ids):
            return waiting.pop(number)
    return None


def throttled(tier: Tier, bytes_per_s: int | None) -> Tier:
    """Open the same tier with a limit of bytes per second; None for no limit.

    It is to be closed as well. Each process that it is pickled to has the same limit of its own.

    Raises:
        OptionError: the limit is not positive, or the tier was not opened by name.
    """
    spec = tier.spec
    if bytes_per_s is not None and bytes_per_s < 1:
        raise OptionError("a rate is at least one byte in a second", found=bytes_per_s)
    if spec is None:
        raise OptionError("a tier that was made of a driver object is not throttled; open it by name")
    if bytes_per_s is None:
        return Tier.open(spec)
    limit = PluginSpec(name="rate-limit", options={"bytes_per_second": bytes_per_s})
    return Tier.open(replace(spec, layers=(*spec.layers, limit)))


def _outcome(move: Move, make: Callable[[], Outcome]) -> Outcome:
    try:
        return make()
    except OffloadError as error:
        return Outcome(move=move, error=error)
