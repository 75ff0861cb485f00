"""Many moves, some at once: what broken ones left is cleaned up first, and one that fails does not end the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.maintenance.relocate.moving import Begun, CopyOrder, Made, Moved, Mover
from offload_core.maintenance.relocate.planning import Move, TopicPlan
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier
from offload_core.storage.tier.registry import LayerSpec
from offload_hooks.errors import OffloadError, OptionError

DEFAULT_PARALLEL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a move.

    Attributes:
        uuid: the new copy's; None if it failed.
        size_bytes: of its objects.
        error: why it failed.
    """

    move: Move
    uuid: UUID | None = None
    size_bytes: int = 0
    error: OffloadError | None = None


def make_moves(
    mover: Mover,
    plans: Sequence[TopicPlan],
    *,
    parallel: int = DEFAULT_PARALLEL,
    executor: Executor | None = None,
) -> Iterator[Outcome]:
    """Make all moves of these plans, `parallel` of them at once; what became of each, as it does.

    Args:
        executor: who makes the new copies, and how many at once, instead of threads. What is written down is written
            here: before a copy is given out, and when it comes back.

    Raises:
        StoreError, FormatError: what was left of earlier attempts cannot be read or deleted.
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
                    under_way[pool.submit(_make, mover, move)] = move
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
    """Moves by an executor, until none is left of ledgers that none under way has; takes them out of `waiting`."""

    def __init__(self, mover: Mover, executor: Executor, waiting: list[Move]) -> None:
        self._mover = mover
        self._executor = executor
        self._waiting = waiting
        self._under_way: deque[tuple[Begun, ExitStack]] = deque()
        self._not_begun: list[Outcome] = []

    def __iter__(self) -> Iterator[Outcome]:
        """Yield what became of each."""
        try:
            for made in self._executor.run(self._mover.maker, self._orders()):
                yield self._end(made)
            yield from self._not_begun
        finally:  # what is under way now is left to the next call, as when this process is killed
            for _, held in self._under_way:
                held.close()

    def _orders(self) -> Iterator[CopyOrder]:
        """Orders, each written down before it is given out."""
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
            return _outcome(begun.order.move, lambda: self._mover.end(begun, made))


def _next(waiting: list[Move], under_way: Collection[Move]) -> Move | None:
    """Take the first move of ledgers that none under way has: there is one at a time of each."""
    taken = {(move.topic, ledger_id) for move in under_way for ledger_id in move.ledger_ids}
    for number, move in enumerate(waiting):
        if taken.isdisjoint((move.topic, ledger_id) for ledger_id in move.ledger_ids):
            return waiting.pop(number)
    return None


def throttled(tier: Tier, bytes_per_s: int | None) -> Tier:
    """The same place, from and to which no more than so many bytes go in a second; None for no limit.

    It is another tier, to be closed as well. Pickled, it is one of its own in each process, with the same limit.

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
    limit = LayerSpec(name="rate-limit", options={"bytes_per_second": bytes_per_s})
    return Tier.open(replace(spec, layers=(*spec.layers, limit)))


def _make(mover: Mover, move: Move) -> Outcome:
    return _outcome(move, lambda: mover.move(move))


def _outcome(move: Move, make: Callable[[], Moved]) -> Outcome:
    try:
        moved = make()
    except OffloadError as error:
        return Outcome(move=move, error=error)
    return Outcome(move=move, uuid=moved.uuid, size_bytes=moved.size_bytes)
