"""The layer `tracing`: an OpenTelemetry span for each call. It only watches.

A span is called `pulsar_offload.<hook>`, is of kind client, and is current while what is below the layer runs, so that
spans of the store's library become its children. Attributes, all under `pulsar_offload.`: `driver` and `tier` (its
location) always; `key` (the prefix of a listing is `prefix`), `bytes`, `offset`, `part_number`, `ranges`, `keys`,
`upload_id` and `create_only` where the hook has them.

A listing is one span, from its first item to its last or to where it is dropped: pages are not to be seen from here.
It is current while items are fetched, not while the caller works on them; `objects` counts them at its end.

An error sets the span's status, `error.type`, and an event `exception` with its text if it is ours: by their law
these texts carry no credentials. Of foreign errors only the type is recorded, and never a stack trace, which would
quote the foreign errors that ours are raised from.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from offload_hooks import BlockReceipt, ByteRange, ReadableBuffer, Upload, hookimpl
from offload_hooks.errors import OffloadError, OptionError
from offload_layers.rest import Rest

_T = TypeVar("_T")
_Wrapper = Generator[None, Any, Any]


class TracingLayer:
    """Makes a span of each call.

    Args:
        rest: the hooks below.
        tracer_provider: OpenTelemetry's, for programs; none: the global one.
    """

    def __init__(self, rest: Rest, tracer_provider: TracerProvider | None = None) -> None:
        if tracer_provider is not None and not isinstance(tracer_provider, TracerProvider):
            raise OptionError("the option 'tracer_provider' is no TracerProvider of OpenTelemetry")
        self._rest = rest
        self._place: dict[str, AttributeValue] = {}
        self._tracer = trace.get_tracer("pulsar_offload", tracer_provider=tracer_provider)

    @hookimpl(wrapper=True)
    def begin_data(self, key: str) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced("begin_data", key=key))

    @hookimpl(wrapper=True)
    def write_block(self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer) -> _Wrapper:
        """See `TierHooks`."""
        block: dict[str, AttributeValue] = {
            "part_number": part_number,
            "offset": offset,
            "bytes": memoryview(data).nbytes,
        }
        return (yield from self._traced("write_block", key=upload.key, upload_id=upload.upload_id, **block))

    @hookimpl(wrapper=True)
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> _Wrapper:
        """See `TierHooks`."""
        whole: dict[str, AttributeValue] = {
            "bytes": sum(receipt.length for receipt in receipts),
            "create_only": create_only,
        }
        return (yield from self._traced("commit_data", key=upload.key, upload_id=upload.upload_id, **whole))

    @hookimpl(wrapper=True)
    def abort_data(self, upload: Upload) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced("abort_data", key=upload.key, upload_id=upload.upload_id))

    @hookimpl(wrapper=True)
    def write_index(self, key: str, data: ReadableBuffer, create_only: bool) -> _Wrapper:
        """See `TierHooks`."""
        size_bytes = memoryview(data).nbytes
        return (yield from self._traced("write_index", key=key, bytes=size_bytes, create_only=create_only))

    @hookimpl(wrapper=True)
    def read_range(self, key: str, offset: int, length: int) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced("read_range", key=key, offset=offset, bytes=length))

    @hookimpl(wrapper=True)
    def read_ranges(self, ranges: Sequence[ByteRange]) -> _Wrapper:
        """See `TierHooks`; `key` if all ranges are of one object."""
        keys = {wanted.key for wanted in ranges}
        one: dict[str, AttributeValue] = {"key": keys.pop()} if len(keys) == 1 else {}
        volume = sum(wanted.length for wanted in ranges)
        return (yield from self._traced("read_ranges", ranges=len(ranges), bytes=volume, **one))

    @hookimpl(wrapper=True)
    def read_object(self, key: str) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced("read_object", key=key))

    @hookimpl(wrapper=True)
    def stat(self, key: str) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced("stat", key=key))

    @hookimpl(wrapper=True)
    def list_objects(self, prefix: str) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced_listing("list_objects", prefix))

    @hookimpl(wrapper=True)
    def delete(self, keys: Sequence[str]) -> _Wrapper:
        """See `TierHooks`; `key` if there is one only."""
        one: dict[str, AttributeValue] = {"key": keys[0]} if len(keys) == 1 else {}
        return (yield from self._traced("delete", keys=len(keys), **one))

    @hookimpl(wrapper=True)
    def list_uploads(self, prefix: str) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._traced_listing("list_uploads", prefix))

    def _traced(self, hook: str, **attributes: AttributeValue) -> _Wrapper:
        span = self._begin(hook, attributes)
        try:
            with _current(span):
                return (yield)
        finally:
            span.end()

    def _traced_listing(self, hook: str, prefix: str) -> _Wrapper:
        # Lazy: the span begins with the first item, and a listing that is never looked at has none.
        try:
            listing = yield
        except BaseException as error:
            span = self._begin(hook, {"prefix": prefix})
            _record(span, error)
            span.end()
            raise
        return self._items(hook, prefix, iter(listing))

    def _items(self, hook: str, prefix: str, listing: Iterator[_T]) -> Iterator[_T]:
        span = self._begin(hook, {"prefix": prefix})
        count = 0
        try:
            while True:
                with _current(span):
                    try:
                        item = next(listing)
                    except StopIteration:
                        return
                count += 1
                yield item
        finally:
            span.set_attribute("pulsar_offload.objects", count)
            span.end()

    def _begin(self, hook: str, attributes: dict[str, AttributeValue]) -> Span:
        if not self._place:
            description = self._rest.describe()
            self._place = {"driver": description.name, "tier": description.location}
        named = {**self._place, **attributes}
        return self._tracer.start_span(
            f"pulsar_offload.{hook}",
            kind=SpanKind.CLIENT,
            attributes={f"pulsar_offload.{name}": value for name, value in named.items()},
            record_exception=False,
            set_status_on_exception=False,
        )


@contextmanager
def _current(span: Span) -> Iterator[None]:
    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        try:
            yield
        except BaseException as error:
            _record(span, error)
            raise


def _record(span: Span, error: BaseException) -> None:
    kind = type(error).__qualname__
    event = {"exception.type": kind}
    if isinstance(error, OffloadError):
        event["exception.message"] = str(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    span.add_event("exception", event)
