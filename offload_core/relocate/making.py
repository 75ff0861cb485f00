"""A new copy that is written down → its objects, each byte and entry compared with the old copy's; nothing is recorded.

This is all that reads and writes objects, so it runs wherever an executor runs it: what it needs of the record comes
with the order, and the tiers are opened by their names. Whoever gave the order switches the record.

An order is carried out once. A second try (of a task that Spark gives to another executor) writes and deletes nothing:
whoever had the order first may still write, and delete what it wrote when that fails, under the same keys. See
docs/adr/0045-relocate-on-executors.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.catalogue.recorded_copies import other_copy_key
from offload_core.codec.object_format import ObjectKey
from offload_core.executors import is_second_try
from offload_core.metadata import DriverMetadata, LedgerRecord, ManagedLedgerInfo, OtherCopy, OtherRole
from offload_core.read_handles import ReadMemory
from offload_core.relocate.books import as_switched
from offload_core.relocate.byte_copies import Check, copy_attempt
from offload_core.relocate.comparison import check_entries, check_objects
from offload_core.relocate.entry_copies import EntryCopies
from offload_core.relocate.kept_entries import EntrySums
from offload_core.relocate.model import How, Move
from offload_core.tier import Tier
from offload_hooks.errors import ObjectNotFoundError, OffloadError, OutcomeUnknownError


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOrder:
    """A new copy that is to be made.

    Attributes:
        uuid, driver: the new copy's, and where it goes, as they are written down.
        ledgers: the records of its ledgers.
        old_keys: where the old copy is, of one that is copied byte by byte: the first that is there.
        marks: user metadata of the new copy, beside that of the old one.
    """

    move: Move
    uuid: UUID
    driver: DriverMetadata
    ledgers: tuple[LedgerRecord, ...]
    old_keys: tuple[ObjectKey, ...]
    marks: Mapping[str, str]

    @property
    def copy(self) -> OtherCopy:
        """The new copy, as its record names it."""
        return OtherCopy(
            role=OtherRole.REPLACEMENT,
            uuid=self.uuid,
            form=self.move.form,
            driver=self.driver,
            since_ms=0,
            segment=self.move.segment,
            ledger_ids=self.move.ledger_ids,
        )

    @property
    def key(self) -> ObjectKey:
        """Where its data object goes."""
        return other_copy_key(self.move.topic, self.copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A new copy that is there, and is what the old one was.

    Attributes:
        size_bytes: of its objects.
        read_bytes: how many were read of the source.
        filters: by ledger, what a filter record says that was written anew.
    """

    size_bytes: int
    read_bytes: int
    filters: Mapping[int, str]


class CopyMaker:
    """Makes new copies; picklable where the tiers are, and calls may come from many threads at once.

    Args:
        source, target: neither is closed.
        block_bytes: of objects that are written in another format.
    """

    def __init__(self, source: Tier, target: Tier, block_bytes: int) -> None:
        self._given = source, target, block_bytes
        self._source = source
        self._target = target
        self._both = KnownTiers(target, [source], elsewhere=lambda _: source)
        from_source = KnownTiers(source, elsewhere=lambda _: source)
        self._entries = EntryCopies(from_source, target, block_bytes=block_bytes, memory=ReadMemory())

    def __reduce__(self) -> tuple[Any, ...]:
        return CopyMaker, self._given

    def __call__(self, order: CopyOrder) -> Made | OffloadError:
        """As `make`; what fails of one copy is a value."""
        if is_second_try():
            return OutcomeUnknownError(
                "a worker was lost while it made a copy, and what it wrote is not known",
                key=order.key.data_key,
                ledger_id=order.move.ledger_ids[0],
                hint="The old copy is read. The next call deletes what is left, and makes it anew.",
            )
        try:
            return self.make(order, lambda _: None)
        except OffloadError as error:
            return error

    def make(self, order: CopyOrder, check: Check) -> Made:
        """Copy, and compare all of it with the old copy.

        Raises:
            DataLossError: the new copy is not what the old one was.
            StoreError, FormatError: of either tier. Something of the new copy may be left.
        """
        read_bytes = 0

        def count(size: int) -> None:
            nonlocal read_bytes
            check(size)
            read_bytes += size

        size_bytes, sums, filters = self._copy(order, count)
        check_objects(self._target, order.key)
        info = ManagedLedgerInfo(ledgers=order.ledgers)
        switched = as_switched(info, order.move, order.uuid, order.driver, filters)
        check_entries(self._both, order.move.name, switched, order.move.ledger_ids, sums)
        return Made(size_bytes=size_bytes, read_bytes=read_bytes, filters=filters)

    def _copy(
        self, order: CopyOrder, check: Callable[[int], None]
    ) -> tuple[int, Mapping[int, EntrySums], dict[int, str]]:
        """Bytes that were written; of entries, what was read; and what filters say."""
        move = order.move
        if move.how is How.BYTES:
            old = next((key for key in order.old_keys if _is_there(self._source, key)), order.old_keys[0])
            copied_bytes = copy_attempt(self._source, old, self._target, order.key, check, order.marks)
            return copied_bytes.size_bytes, {}, {}
        copied = self._entries.copy(move.name, order.ledgers, order.uuid, move.format, check, order.marks)
        filters = {each: record.pack(short=True) for each, record in copied.filters.items()}
        return copied.size_bytes, copied.sums, filters


def _is_there(tier: Tier, key: ObjectKey) -> bool:
    try:
        tier.stat(key.index_key)
    except ObjectNotFoundError:
        return False
    return True
