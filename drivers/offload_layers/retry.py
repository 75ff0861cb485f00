"""The layer `retry`: calls that failed for a time only are made again.

When and how often is in `attempts`. What is made again differs from hook to hook:
- `begin_data`, `write_block`, `abort_data`, `read_range`, `read_ranges`, `read_object`, `stat`, `delete` and
  `write_index` that may replace: simply the same call. An attempt of `begin_data` that was lost leaves a stale upload;
  `abort_data` answers False if an attempt whose answer was lost had dropped the upload;
- `list_objects` and `list_uploads`: go on after the last item that was seen;
- `commit_data`, and `write_index` with `create_only`: an attempt without an answer may have taken effect, and the next
  one then fails. Such an error is settled by reading back, see `_settled`; never by a guess.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import stamina

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
from offload_hooks.counts import count_retry
from offload_hooks.errors import ObjectExistsError, OffloadError, StoreUnreachableError, UploadError
from offload_hooks.option_text import as_count, as_flag, as_seconds
from offload_layers.per_process import PerProcess
from offload_layers.rest import Rest

# One call, made again while its error says that this may help: stamina's loop with this project's rules.
#
# Only an `OffloadError` whose `retryable` is True is followed by another attempt. The wait grows exponentially, with
# jitter; an error that carries `retry_after_s` is waited for at least that long. No attempt begins after the budget of
# time: an error whose wait would last longer is raised at once. The last error is raised as it came.


_T = TypeVar("_T")

_LEAST_S = 1e-9
"""What is left of a budget that a first attempt has used up: stamina warns of 0."""


@dataclass(slots=True, kw_only=True)
class Attempts:
    """How often, how long and with what waits a call is made again.

    A store that was never reached is asked once: its address is probably wrong.

    Attributes:
        most: the most attempts, the first included.
        budget_s: the time for all of them and the waits between them; None: no limit.
        first_wait_s: the wait after the first attempt; it doubles with each further one.
        longest_wait_s: the longest wait, but for what a store asks for.
        jitter_s: up to so much is added to each wait, at random.
        was_reached: the store answered before.
    """

    most: int
    budget_s: float | None
    first_wait_s: float
    longest_wait_s: float
    jitter_s: float
    was_reached: bool = False

    def run(self, hook: str, key: str, call: Callable[[], _T], *, asks: bool = True) -> _T:
        """Call, and call again where that may help; each further attempt is logged with the hook and the key.

        `asks` is False where an answer does not mean yet that the store was reached.
        """
        began = time.monotonic()
        try:
            answer = call()
        except OffloadError as error:
            self.was_reached |= not isinstance(error, StoreUnreachableError)
            if not (error.retryable and self.was_reached):
                raise
            failed = [error]
        else:
            self.was_reached |= asks
            return answer
        # Only now, since the loop costs more than many a call. What failed is its first attempt.
        deadline = float("inf") if self.budget_s is None else began + self.budget_s
        failure = ""

        def wait_s(error: Exception) -> bool | float:
            nonlocal failure
            failure = type(error).__name__
            if not (isinstance(error, OffloadError) and error.retryable):
                return False
            asked: float | None = getattr(error, "retry_after_s", None)
            least = attempt.next_wait if asked is None else max(asked, attempt.next_wait)
            if time.monotonic() + least > deadline:
                return False
            # Many clients are told the same time, so they are spread by the jitter here as well.
            return True if asked is None else least + random.uniform(0, self.jitter_s)  # noqa: S311

        for attempt in stamina.retry_context(
            on=wait_s,
            attempts=self.most,
            timeout=None if self.budget_s is None else max(deadline - time.monotonic(), _LEAST_S),
            wait_initial=self.first_wait_s,
            wait_max=self.longest_wait_s,
            wait_jitter=self.jitter_s,
        ):
            if attempt.num > 1:
                count_retry()
                named = {"hook": hook, "key": key, "attempt": attempt.num}
                _log.warning("%s of %r: attempt %d, after %s", *named.values(), failure, extra=named)
            with attempt:
                if failed:
                    raise failed.pop()
                return call()
        raise AssertionError("stamina's loop ends by an answer or an error")


# How a commit whose outcome is unknown is recognised afterwards: a random mark in the object's user metadata.
#
# A commit that timed out may have happened. When it is made again the driver then says that the upload is gone or that
# the object exists: because of us, or of somebody else. Key, size and even content may be the same for both. So each
# data object, and each create-only index, gets one more entry of user metadata, random for each call. An object that
# carries the entry of this very call was committed by it: that is sure, and nothing else is.


MARKER = "offloadcommit"
"""The entry's name: what every store takes as a name of user metadata."""

_MOST_UPLOADS = 10_000  # those that were begun and neither committed nor aborted by this layer


def new_marker() -> str:
    """A value that no other call has."""
    return uuid.uuid4().hex


def marked(user_metadata: Mapping[str, str], marker: str) -> dict[str, str]:
    """User metadata with the mark."""
    return {**user_metadata, MARKER: marker}


def unmarked(stat: ObjectStat) -> ObjectStat:
    """A stat as the writer of the object knows it: without the mark."""
    if MARKER not in stat.user_metadata:
        return stat
    rest = {name: value for name, value in stat.user_metadata.items() if name != MARKER}
    return replace(stat, user_metadata=rest)


class UploadMarkers:
    """The marks of the uploads that this process began; the oldest are forgotten when there are very many."""

    def __init__(self) -> None:
        self._lock = PerProcess(threading.Lock)
        self._markers: OrderedDict[Upload, str] = OrderedDict()

    def remember(self, upload: Upload, marker: str) -> None:
        """Keep an upload's mark."""
        with self._lock.get():
            self._markers[upload] = marker
            while len(self._markers) > _MOST_UPLOADS:
                self._markers.popitem(last=False)

    def of(self, upload: Upload) -> str | None:
        """An upload's mark, None for one that was begun elsewhere."""
        return self._markers.get(upload)

    def forget(self, upload: Upload) -> None:
        """Drop the mark of an upload that is over."""
        with self._lock.get():
            self._markers.pop(upload, None)


def resumed(
    attempts: Attempts, hook: str, prefix: str, reopen: Callable[[_T | None], Iterator[_T]]
) -> Iterator[_T]:
    """What `reopen(None)` lists; after an error, what `reopen(last item)` lists, which must begin after that item.

    The first call of `reopen` is made at once, not with the first item. Attempts are counted anew after each item.
    """
    first = attempts.run(hook, prefix, lambda: iter(reopen(None)), asks=False)
    return _items(attempts, hook, prefix, reopen, first)


def _items(
    attempts: Attempts,
    hook: str,
    prefix: str,
    reopen: Callable[[_T | None], Iterator[_T]],
    listing: Iterator[_T],
) -> Iterator[_T]:
    last: _T | None = None
    while True:
        try:
            item = next(listing, None)
        except OffloadError as error:
            listing, item = attempts.run(hook, prefix, _again(error, reopen, last))
        attempts.was_reached = True
        if item is None:
            return
        last = item
        yield item


def _again(
    error: OffloadError, reopen: Callable[[_T | None], Iterator[_T]], last: _T | None
) -> Callable[[], tuple[Iterator[_T], _T | None]]:
    """The listing's continuation as a call whose first attempt was the one that failed with `error`."""
    failed = [error]

    def call() -> tuple[Iterator[_T], _T | None]:
        if failed:
            raise failed.pop()
        listing = iter(reopen(last))
        return listing, next(listing, None)

    return call


_log = logging.getLogger(__name__)


class RetryLayer:
    """Makes calls again whose error is retryable.

    Args:
        rest: the hooks below.
        attempts: the most attempts of a call, the first included.
        budget_s: no attempt begins later than this after the first; 0: no limit.
        first_wait_s: the wait after the first attempt; it doubles with each further one.
        longest_wait_s: the longest wait, but for a longer one that the store asks for.
        jitter_s: up to so much is added to a wait, at random.
        mark_commits: put a random mark into the user metadata of objects, by which a commit whose outcome is unknown
            is recognised afterwards; `stat` does not show it. Without it such a commit is always an error.
    """

    def __init__(
        self,
        rest: Rest,
        attempts: int | str = 10,
        budget_s: float | str = 60.0,
        first_wait_s: float | str = 0.1,
        longest_wait_s: float | str = 5.0,
        jitter_s: float | str = 1.0,
        mark_commits: bool | str = True,
    ) -> None:
        self._rest = rest
        self._attempts = Attempts(
            most=as_count("attempts", attempts),
            budget_s=as_seconds("budget_s", budget_s) or None,
            first_wait_s=as_seconds("first_wait_s", first_wait_s),
            longest_wait_s=as_seconds("longest_wait_s", longest_wait_s),
            jitter_s=as_seconds("jitter_s", jitter_s),
        )
        self._marks = as_flag("mark_commits", mark_commits)
        self._markers = UploadMarkers()

    # --- simply again --------------------------------------------------------------------------

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        marker = new_marker()
        metadata = marked(user_metadata, marker) if self._marks else user_metadata
        upload = self._attempts.run(
            "begin_data",
            key,
            lambda: self._rest.begin_data(key=key, content_type=content_type, user_metadata=metadata),
        )
        if self._marks:
            self._markers.remember(upload, marker)
        return upload

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`."""
        return self._attempts.run(
            "write_block",
            upload.key,
            lambda: self._rest.write_block(upload=upload, part_number=part_number, offset=offset, data=data),
        )

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        dropped = self._attempts.run("abort_data", upload.key, lambda: self._rest.abort_data(upload=upload))
        self._markers.forget(upload)
        return dropped

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        return self._attempts.run(
            "read_range", key, lambda: self._rest.read_range(key=key, offset=offset, length=length)
        )

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""
        first = ranges[0].key if ranges else ""
        return self._attempts.run("read_ranges", first, lambda: self._rest.read_ranges(ranges=ranges))

    @hookimpl
    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `TierHooks`."""
        whole = self._attempts.run(
            "read_object", key, lambda: self._rest.read_object(key=key, most_bytes=most_bytes)
        )
        return WholeObject(stat=unmarked(whole.stat), data=whole.data)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        return unmarked(self._attempts.run("stat", key, lambda: self._rest.stat(key=key)))

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        return self._attempts.run("delete", keys[0] if keys else "", lambda: self._rest.delete(keys=keys))

    # --- listings ------------------------------------------------------------------------------

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""

        def reopen(last: ListedObject | None) -> Iterator[ListedObject]:
            after = start_after if last is None else last.key
            return self._rest.list_objects(prefix=prefix, start_after=after)

        return resumed(self._attempts, "list_objects", prefix, reopen)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        seen: set[Upload] = set()

        def reopen(_: StaleUpload | None) -> Iterator[StaleUpload]:
            # There is no order to go on in, so all are listed again. They are few.
            for stale in self._rest.list_uploads(prefix=prefix):
                if stale.upload not in seen:
                    seen.add(stale.upload)
                    yield stale

        return resumed(self._attempts, "list_uploads", prefix, reopen)

    # --- commits -------------------------------------------------------------------------------

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        stat = self._committed(
            "commit_data",
            upload.key,
            self._markers.of(upload),
            sum(receipt.length for receipt in receipts),
            lambda: self._rest.commit_data(upload=upload, receipts=receipts, create_only=create_only),
        )
        self._markers.forget(upload)
        return stat

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
        marker = new_marker() if create_only and self._marks else None
        metadata = user_metadata if marker is None else marked(user_metadata, marker)

        def write() -> ObjectStat:
            return self._rest.write_index(
                key=key, data=data, content_type=content_type, user_metadata=metadata, create_only=create_only
            )

        if not create_only:
            return unmarked(self._attempts.run("write_index", key, write))
        return self._committed("write_index", key, marker, memoryview(data).nbytes, write)

    def _committed(
        self, hook: str, key: str, marker: str | None, size_bytes: int, commit: Callable[[], ObjectStat]
    ) -> ObjectStat:
        doubts: list[OffloadError] = []

        def once() -> ObjectStat:
            try:
                return commit()
            except OffloadError as error:
                if error.retryable:
                    doubts.append(error)
                raise

        try:
            return unmarked(self._attempts.run(hook, key, once))
        except OffloadError as last:
            if not doubts:
                raise
            return self._settled(hook, key, marker, size_bytes, doubts[-1], last)

    def _settled(
        self,
        hook: str,
        key: str,
        marker: str | None,
        size_bytes: int,
        doubt: OffloadError,
        last: OffloadError,
    ) -> ObjectStat:
        """A commit that had an attempt of unknown outcome (`doubt`) and ended with the error `last`.

        - The object has this call's mark and size: it was committed. The answer is its stat.
        - It exists, is another's (it has another mark or none), and `last` is `ObjectExistsError`: that is raised.
        - Else nothing is sure. What is raised is `doubt` in place of an `ObjectExistsError` or `UploadError`, which
          would tell that this call has written nothing; any other error as it is; both with a hint.
        """
        found = None if marker is None else self._found(key, last)
        if found is not None and found.user_metadata.get(MARKER) == marker:
            if found.size_bytes == size_bytes:
                _log.info("%s of %r: an attempt without an answer had taken effect", hook, key)
                return unmarked(found)
        elif found is not None and isinstance(last, ObjectExistsError):
            raise last
        unsure = doubt if isinstance(last, ObjectExistsError | UploadError) else last
        hint = f"Whether this {hook} took effect is not known: look for the object before you write it again."
        unsure.hint = f"{unsure.hint} {hint}" if unsure.hint else hint
        if unsure is last:
            raise unsure
        raise unsure from last

    def _found(self, key: str, last: OffloadError) -> ObjectStat | None:
        """What is at the key now; None also if that cannot be told."""
        try:
            if last.retryable:  # the attempts are used up, so one look is all
                return self._rest.stat(key=key)
            return self._attempts.run("stat", key, lambda: self._rest.stat(key=key))
        except OffloadError:
            return None
