"""The layer that makes calls go wrong by a fault plan, to test the layers and programs before it.

Configured by name (the layer `fault-plan` of the extra `testing`) it takes text; in Python it may be given the plan,
which then records what happened:

    plan = FaultPlan([Fault(kind="fail-before", hooks=("read_range",), probability=0.1)], seed=7)
    tier = Tier(driver, [Layer(name="faults", make=lambda rest: FaultLayer(rest, plan=plan))])
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from offload_hooks import (
    BlockReceipt,
    ByteRange,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    StaleUpload,
    Upload,
    WholeObject,
    hookimpl,
)
from offload_hooks.testing.fault_plan import FaultPlan, Hits

_Listed = TypeVar("_Listed")


class FaultLayer:
    """A layer with planned faults.

    Args:
        rest: the hooks of everything below.
        faults: the plan as text, see `fault_plan`.
        seed: names the dice.
        plan: the plan itself, instead of `faults` and `seed`.
    """

    def __init__(
        self, rest: Any, faults: str = "", seed: int | str = 0, *, plan: FaultPlan | None = None
    ) -> None:
        self._rest = rest
        self._plan = plan or FaultPlan.parse(faults, seed=seed)
        self._listings: dict[tuple[str, str], list[ListedObject]] = {}
        self._lock = threading.Lock()

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        arguments = {"key": key, "content_type": content_type, "user_metadata": user_metadata}
        return cast("Upload", self._call("begin_data", key, arguments))

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`."""
        arguments = {"upload": upload, "part_number": part_number, "offset": offset, "data": data}
        return cast("BlockReceipt", self._call("write_block", upload.key, arguments))

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        arguments = {"upload": upload, "receipts": receipts, "create_only": create_only}
        return cast("ObjectStat", self._call("commit_data", upload.key, arguments))

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        return cast("bool", self._call("abort_data", upload.key, {"upload": upload}))

    @hookimpl
    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        content_type: str,
        user_metadata: Mapping[str, str],
        create_only: bool,
    ) -> ObjectStat:
        """See `TierHooks`."""
        arguments = {
            "key": key,
            "data": data,
            "content_type": content_type,
            "user_metadata": user_metadata,
            "create_only": create_only,
        }
        return cast("ObjectStat", self._call("write_index", key, arguments))

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        hits = self._plan.next_call("read_range", key)
        answer = self._made(hits, "read_range", {"key": key, "offset": offset, "length": length})
        self._fail_after(hits, "read_range")
        return _cut(answer, hits) if hits.take("truncate") else cast("ReadableBuffer", answer)

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`; of many ranges the last one is truncated."""
        hits = self._plan.next_call("read_ranges", ranges[0].key if ranges else "")
        answer = list(self._made(hits, "read_ranges", {"ranges": ranges}))
        self._fail_after(hits, "read_ranges")
        if answer and hits.take("truncate"):
            answer[-1] = _cut(answer[-1], hits)
        return answer

    @hookimpl
    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `TierHooks`; a truncated one has fewer bytes than its stat says."""
        hits = self._plan.next_call("read_object", key)
        answer = cast("WholeObject", self._made(hits, "read_object", {"key": key, "most_bytes": most_bytes}))
        self._fail_after(hits, "read_object")
        return replace(answer, data=_cut(answer.data, hits)) if hits.take("truncate") else answer

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        return cast("ObjectStat", self._call("stat", key, {"key": key}))

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        hits = self._plan.next_call("list_objects", prefix)
        with self._lock:
            older = self._listings.get((prefix, start_after))
        if older is not None and hits.take("stale-list"):
            return iter(older)
        answer = self._made(hits, "list_objects", {"prefix": prefix, "start_after": start_after})
        return self._broken_off(hits, "list_objects", self._remembered(prefix, start_after, answer))

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        return cast("int", self._call("delete", keys[0] if keys else "", {"keys": keys}))

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        hits = self._plan.next_call("list_uploads", prefix)
        answer = self._made(hits, "list_uploads", {"prefix": prefix})
        return self._broken_off(hits, "list_uploads", answer)

    def _call(self, hook: str, key: str, arguments: Mapping[str, Any]) -> object:
        hits = self._plan.next_call(hook, key)
        answer = self._made(hits, hook, arguments)
        self._fail_after(hits, hook)
        return answer

    def _made(self, hits: Hits, hook: str, arguments: Mapping[str, Any]) -> Any:
        """The answer of the call itself, late or twice or not at all."""
        if delay := hits.take("delay"):
            self._plan.sleep(delay.delay_s)
        if failure := hits.take("fail-before"):
            raise failure.make_error(hook)
        answer = getattr(self._rest, hook)(**arguments)
        return getattr(self._rest, hook)(**arguments) if hits.take("duplicate") else answer

    def _fail_after(self, hits: Hits, hook: str) -> None:
        if failure := hits.take("fail-after"):
            raise failure.make_error(hook)

    def _broken_off(self, hits: Hits, hook: str, listing: Iterator[_Listed]) -> Iterator[_Listed]:
        """The listing, or its first item and an error."""
        failure = hits.take("fail-after")
        for found in listing:
            yield found
            if failure:
                break
        if failure:
            raise failure.make_error(hook)

    def _remembered(
        self, prefix: str, start_after: str, listing: Iterator[ListedObject]
    ) -> Iterator[ListedObject]:
        """The listing, which is an older one once it was seen to its end."""
        seen = []
        for found in listing:
            seen.append(found)
            yield found
        with self._lock:
            self._listings[prefix, start_after] = seen


def _cut(data: ReadableBuffer, hits: Hits) -> memoryview:
    view = memoryview(data).cast("B")
    return view[: hits.less_than(view.nbytes)]
