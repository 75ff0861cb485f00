"""Checksums for objects that have none, once every byte of them was found to be right.

A pair is looked at once more just before: what was written anew since it was verified gets none, and so a kill behind
the write leaves none of bytes that were not there any more. Whoever writes a pair anew after that look has changed what
was sealed, which is what checksums are there to tell. Each is recorded before it is written. Who is killed has written
some of them; the next verification writes the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from offload_core.format.codec.block_checksums import BlockChecksums, pack_block_checksums
from offload_core.format.codec.object_format import CLUSTER_KEY, ROLE_KEY, TOPIC_KEY
from offload_core.maintenance.verify.codes import Code
from offload_core.maintenance.verify.deep import LedgerCount
from offload_core.maintenance.verify.pair_checks import Examined
from offload_core.metadata.catalogue import concurrently
from offload_core.metadata.catalogue.listing import Pair
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, OffloadError, StoreError
from offload_hooks.values import ListedObject, ObjectStat

_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Sealable:
    """A sound pair of objects, its checksums, and what was counted in it."""

    examined: Examined
    checksums: BlockChecksums
    counts: tuple[LedgerCount, ...]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A pair with its checksums; None if it has vanished, or changed. In a dry run it has none yet."""

    pair: Pair | None
    counts: tuple[LedgerCount, ...]


class Sealing:
    """Writes checksums beside objects.

    Args:
        audit: where each is recorded before it is written; None for a dry run, which writes nothing.
    """

    def __init__(self, tier: Tier, audit: AuditLog | None) -> None:
        self._tier = tier
        self._audit = audit
        self._waiting: list[Sealable] = []

    def add(self, sealable: Sealable) -> None:
        """Take a pair that is to have checksums; `settle` writes them."""
        self._waiting.append(sealable)

    @property
    def is_full(self) -> bool:
        """True if as many are waiting as are written at once."""
        return len(self._waiting) >= _TOGETHER

    def settle(self) -> Sequence[Sealed | OffloadError]:
        """Write the checksums of those that were added since the last time; what came of each."""
        waiting, self._waiting = self._waiting, []
        return concurrently(self._seal, waiting)

    def _seal(self, sealable: Sealable) -> Sealed | OffloadError:
        pair = sealable.examined.pair
        if self._audit is None:
            return Sealed(pair, sealable.counts)
        key = pair.key
        self._audit.record(
            Change(
                action=ChangeAction.WRITE,
                why="every byte of the object is right, and it has no checksums that can be read",
                managed_ledger=sealable.examined.managed_ledger,
                ledger_id=key.ledger_id,
                uuid=key.uuid,
                key=key.block_checksums_key,
                before=None if pair.block_checksums is None else "damaged checksums",
                after=f"CRC-32C of the index and {len(sealable.checksums.lengths)} blocks",
            )
        )
        try:
            return Sealed(self._written(sealable), sealable.counts)
        except StoreError as error:
            return error.at(key=key.block_checksums_key)

    def _written(self, sealable: Sealable) -> Pair | None:
        """The pair as it is now; None if it is gone, or another: then these checksums are not there either."""
        pair = sealable.examined.pair
        key = pair.key.block_checksums_key
        if not self._is_as_verified(pair):
            return None
        is_ours = False
        with suppress(ObjectExistsError):  # its writer was slower than our listing
            self._tier.write_index(
                key,
                pack_block_checksums(sealable.checksums),
                user_metadata=_about(sealable.examined),
                create_only=pair.block_checksums is None,
            )
            is_ours = True
        if not self._is_as_verified(pair):
            if is_ours:
                self._tier.delete(
                    [key]
                )  # the process that wrote it anew knows its bytes, or the next verification does
            return None
        stat = self._tier.stat(key)
        listed = ListedObject(key=key, size_bytes=stat.size_bytes, modified_at=stat.modified_at)
        return replace(pair, block_checksums=listed)

    def _is_as_verified(self, pair: Pair) -> bool:
        try:
            now = [self._tier.stat(name) for name in (pair.key.data_key, pair.key.index_key)]
        except ObjectNotFoundError:
            return False
        return [_looks(each) for each in now] == [_looks(each) for each in (pair.data, pair.index)]


def _looks(stored: ObjectStat | ListedObject | None) -> tuple[object, ...]:
    return () if stored is None else (stored.size_bytes, stored.modified_at)


def _about(examined: Examined) -> dict[str, str]:
    """User metadata: whose checksums they are, where their key does not say it."""
    if examined.key.is_mapfile:
        return {}
    names = {TOPIC_KEY: examined.managed_ledger, CLUSTER_KEY: examined.cluster}
    return {ROLE_KEY: "checksums", **{name: value for name, value in names.items() if value is not None}}


def is_sealable(examined: Examined) -> bool:
    """Return whether a pair may have checksums made, if every byte of it is right: it has none that can be read."""
    if examined.has_checksums or any(
        finding.code is not Code.CHECKSUMS_DAMAGED for finding in examined.findings
    ):
        return False
    return examined.is_sound
