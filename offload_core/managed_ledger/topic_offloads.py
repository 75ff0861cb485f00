"""The offloads of one managed ledger, whoever owns it: its ledgers to a tier, and their hot copies deleted afterwards.

It changes the record by compare-and-set only where an offload does; so it can be used beside the owner, in another
process too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal
from uuid import UUID

from offload_core.audit import Deletion
from offload_core.filters import FilterRecord
from offload_core.managed_ledger.environment import Environment
from offload_core.managed_ledger.prefix_offload import (
    STOP_TIMEOUT_S,
    OffloadStatus,
    PrefixOffload,
    configured,
)
from offload_core.managed_ledger.transactions.topic_filters import open_filter
from offload_core.metadata import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_hooks.errors import OffloadError, UnknownTopicError


class _DueError(Exception):
    """A hot copy is about to be deleted: nothing was changed yet."""


class TopicOffloads:
    """Offloads of the managed ledger of this name; see `topic_offloads`.

    Args:
        read: the record as it is now.
        moved: told of each ledger whose copies are others now.
    """

    def __init__(
        self,
        environment: Environment,
        name: str,
        read: Callable[[], ManagedLedgerInfo],
        moved: Callable[[int], None],
    ) -> None:
        self.name = name
        self._environment = environment
        self._read = read
        self._moved = moved
        self._prefix = PrefixOffload(
            name, environment.offloads, partial(open_filter, environment, name), read, moved, self._announce
        )

    def read_info(self) -> ManagedLedgerInfo:
        """The record as it is now."""
        return self._read()

    def offload_prefix(self, position: EntryPosition) -> EntryPosition:
        """See `ManagedLedger.offload_prefix`."""
        return self._prefix.run(position)

    @property
    def offload_status(self) -> OffloadStatus:
        """See `ManagedLedger.offload_status`."""
        return self._prefix.status

    def stop_offload(self) -> None:
        """See `ManagedLedger.stop_offload`."""
        self._prefix.stop()

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the offload that runs, and begin none any more; wait for it, so long at most."""
        self._prefix.close(timeout_s)

    def delete_hot_copies(self, lag_s: float) -> list[int]:
        """See `ManagedLedger.delete_hot_copies`."""
        return self._delete_hot_copies(lag_s, self._announce_hot)

    def due_hot_copies(self, lag_s: float) -> list[int]:
        """The ledgers whose hot copies `delete_hot_copies` would delete, after the same checks; errors as of that."""

        def stop(_: Deletion, __: tuple[FilterRecord, ...]) -> None:
            raise _DueError

        return self._delete_hot_copies(lag_s, stop)

    def _delete_hot_copies(
        self, lag_s: float, announce: Callable[[Deletion, tuple[FilterRecord, ...]], None]
    ) -> list[int]:
        offloads = configured(self._environment.offloads, self.name)
        complete = [ledger for ledger in self._read().in_order if ledger.has_complete_copy]
        if not complete:
            return []  # the usual case of a round of upkeep, and the hot tier's listing is the dear part
        is_hot = set(self._environment.hot.of(self.name)).__contains__
        found: list[int] = []
        failures: list[OffloadError] = []
        for ledger in complete:
            if not is_hot(ledger.ledger_id):
                continue
            deletion = self._deletion(
                ledger, copy="hot", why="it was offloaded, and the deletion lag is over"
            )
            try:
                if offloads.delete_hot_copy(
                    self.name, ledger.ledger_id, int(lag_s * 1000), announce=partial(announce, deletion)
                ):
                    found.append(ledger.ledger_id)
                    self._moved(ledger.ledger_id)
            except _DueError:
                found.append(ledger.ledger_id)
            except OffloadError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return found

    def _announce(self, ledger: LedgerRecord, uuid: UUID, why: str) -> None:
        self._environment.audit.record(self._deletion(ledger, copy="cold", why=why, uuid=uuid))

    def _announce_hot(self, deletion: Deletion, filtered: tuple[FilterRecord, ...]) -> None:
        self._environment.audit.record(replace(deletion, filtered=filtered))

    def _deletion(
        self, ledger: LedgerRecord, *, copy: Literal["hot", "cold"], why: str, uuid: UUID | None = None
    ) -> Deletion:
        return Deletion(
            managed_ledger=self.name,
            ledger_id=ledger.ledger_id,
            copy=copy,
            why=why,
            uuid=uuid,
            entries=ledger.info.entries,
            size_bytes=ledger.info.size,
        )


def topic_offloads(environment: Environment, name: str) -> TopicOffloads:
    """The offloads of a managed ledger that need not be open here, nor is it looked for yet.

    Its calls raise `UnknownTopicError` if there is none.
    """

    def read() -> ManagedLedgerInfo:
        known = environment.records.read(name)
        if known is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=name)
        return known.info

    return TopicOffloads(environment, name, read, lambda _: None)
