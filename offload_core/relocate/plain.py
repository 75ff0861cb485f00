"""Objects of a tier → another tier, under the same keys, without records; what is there already is compared.

Nothing is overwritten that is not the same, and nothing of the source is deleted. So it goes on where it was broken
off, and can be made again for what was added meanwhile.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offload_core.audit import AuditLog, Change, ChangeAction
from offload_core.catalogue import TopicName
from offload_core.catalogue.listing import Pair, stream_pairs
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.codec.object_format import ObjectKey
from offload_core.relocate.byte_copies import copy_attempt, same_objects
from offload_core.relocate.comparison import check_objects, find_pair
from offload_core.tier import Tier
from offload_core.verify import VerifiedObjects
from offload_hooks.errors import ObjectNotFoundError, OffloadError

_TOPIC_KEY = "managedledgername"


class PlainStatus(enum.Enum):
    """What becomes of a pair of objects."""

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
    """What became of a pair of objects; `error` why it failed."""

    key: ObjectKey
    topic: TopicName | None
    size_bytes: int
    status: PlainStatus
    error: OffloadError | None = None


class PlainCopy:
    """Copies a tier's objects to another; iterate over it once for what becomes of each pair.

    Args:
        prefix: only objects whose keys begin so.
        wants: which topics'; told None for objects that name none.
        audit: each object is recorded there before it is written; None: nothing is written, it is a dry run.
        state: passes over what was verified in the target before and looks as it did.
        listener: told of bytes as they are read.

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
        listener: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._target = target
        self._prefix = prefix
        self._wants = wants
        self._audit = audit
        self._state = state
        self._listener = listener

    def __iter__(self) -> Iterator[PlainResult]:
        """What becomes of each pair, in the order of keys."""
        for pair in stream_pairs(self._source, self._prefix):
            topic = self._topic(pair)
            if not self._wants(topic):
                continue
            error: OffloadError | None = None
            try:
                status = self._copy(pair)
            except ObjectNotFoundError:
                status = PlainStatus.HALF  # it was deleted meanwhile
            except OffloadError as failure:
                status, error = PlainStatus.FAILED, failure
            parts = [each.size_bytes for each in (pair.data, pair.index) if each is not None]
            yield PlainResult(key=pair.key, topic=topic, size_bytes=sum(parts), status=status, error=error)

    def _topic(self, pair: Pair) -> TopicName | None:
        name = pair.key.managed_ledger
        for listed in (pair.data, pair.index):
            if name is None and listed is not None:
                try:
                    name = self._source.stat(listed.key).user_metadata.get(_TOPIC_KEY)
                except ObjectNotFoundError:
                    continue
        return None if name is None else topic_of_managed_ledger(name)

    def _copy(self, pair: Pair) -> PlainStatus:
        if pair.data is None or pair.index is None:
            return PlainStatus.HALF
        key = pair.key
        known = find_pair(self._target, key)
        if self._state is not None and known.data and known.index and self._state.find(known) is not None:
            return PlainStatus.THERE
        there = [each.key for each in (known.data, known.index) if each is not None]
        if self._audit is None:
            return PlainStatus.THERE if len(there) == 2 else PlainStatus.MISSING
        if not all(same_objects(self._source, self._target, each) for each in there):
            return PlainStatus.CONFLICT
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
            copy_attempt(self._source, key, self._target, key, self._listener)
        check_objects(self._target, key)
        if self._state is not None:
            self._state.add(find_pair(self._target, key), ())
        return PlainStatus.THERE if len(there) == 2 else PlainStatus.COPIED
