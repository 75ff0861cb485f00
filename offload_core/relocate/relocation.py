"""Many moves, some at once: what broken ones left is cleaned up first, and one that fails does not end the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.relocate.model import Move, TopicPlan
from offload_core.relocate.moving import Mover
from offload_core.tier import Tier
from offload_core.tier.spec import LayerSpec
from offload_hooks.errors import OffloadError, OptionError

DEFAULT_PARALLEL = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a move.

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
    mover: Mover, plans: Sequence[TopicPlan], *, parallel: int = DEFAULT_PARALLEL
) -> Iterator[Outcome]:
    """Make all moves of these plans, `parallel` of them at once; what became of each, as it does.

    Raises:
        StoreError, FormatError: what was left of earlier attempts cannot be read or deleted.
    """
    for plan in plans:
        mover.clean(plan.topic)
    waiting = [move for plan in plans for move in plan.moves]
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


def _next(waiting: list[Move], under_way: Collection[Move]) -> Move | None:
    """Take the first move of ledgers that none under way has: there is one at a time of each."""
    taken = {(move.topic, ledger_id) for move in under_way for ledger_id in move.ledger_ids}
    for number, move in enumerate(waiting):
        if taken.isdisjoint((move.topic, ledger_id) for ledger_id in move.ledger_ids):
            return waiting.pop(number)
    return None


def throttled(tier: Tier, bytes_per_s: int | None) -> Tier:
    """The same place, from and to which no more than so many bytes go in a second; None for no limit.

    It is another tier, to be closed as well.

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
    try:
        moved = mover.move(move)
    except OffloadError as error:
        return Outcome(move=move, error=error)
    return Outcome(move=move, uuid=moved.uuid, size_bytes=moved.size_bytes)
