"""The layer `metrics`: what passes through it, as OpenTelemetry metrics. It only watches.

| instrument | kind, unit | attributes beside hook and driver |
| `pulsar_offload.tier.calls` | counter, `{call}` | |
| `pulsar_offload.tier.errors` | counter, `{error}` | `error.type`, the class of the error |
| `pulsar_offload.tier.io` | counter, `By` | `pulsar_offload.io.direction`, `read` or `write` |
| `pulsar_offload.tier.call.duration` | histogram, `s` | `error.type` for calls that failed |
| `pulsar_offload.tier.calls.active` | up-down counter, `{call}` | |

All have `pulsar_offload.hook` and `pulsar_offload.driver`, and `pulsar_offload.place` if the option `place` is set.
Keys are never attributes: there are too many of them. Bytes count when the call has succeeded. A listing is one call,
from its first item to its last or to where it is dropped; its duration leaves out what the caller does in between.
Without an OpenTelemetry SDK the instruments do nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from offload_hooks import ByteRange, ReadableBuffer, WholeObject, hookimpl
from offload_hooks.errors import OptionError
from offload_layers.rest import Rest

_T = TypeVar("_T")
_Wrapper = Generator[None, Any, Any]
_Attributes = dict[str, str]


class MetricsLayer:
    """Counts and times calls.

    Args:
        rest: the hooks below.
        place: a name that goes with each measurement, to tell two such layers of one Tier apart (one above a cache
            and one below, say).
        meter_provider: OpenTelemetry's, for programs; none: the global one.
    """

    def __init__(self, rest: Rest, place: str = "", meter_provider: MeterProvider | None = None) -> None:
        if meter_provider is not None and not isinstance(meter_provider, MeterProvider):
            raise OptionError("the option 'meter_provider' is no MeterProvider of OpenTelemetry")
        self._rest = rest
        self._place = place
        self._attributes: dict[str, _Attributes] = {}
        meter = metrics.get_meter("pulsar_offload", meter_provider=meter_provider)
        name = "pulsar_offload.tier"
        self._calls = meter.create_counter(f"{name}.calls", "{call}", "Calls of hooks that are over.")
        self._errors = meter.create_counter(f"{name}.errors", "{error}", "Calls of hooks that failed.")
        self._io = meter.create_counter(f"{name}.io", "By", "Bytes that were read or written.")
        self._duration = meter.create_histogram(f"{name}.call.duration", "s", "How long calls of hooks took.")
        self._active = meter.create_up_down_counter(
            f"{name}.calls.active", "{call}", "Calls of hooks under way."
        )

    @hookimpl(wrapper=True)
    def begin_data(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("begin_data"))

    @hookimpl(wrapper=True)
    def write_block(self, data: ReadableBuffer) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("write_block", "write", memoryview(data).nbytes))

    @hookimpl(wrapper=True)
    def commit_data(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("commit_data"))

    @hookimpl(wrapper=True)
    def abort_data(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("abort_data"))

    @hookimpl(wrapper=True)
    def write_index(self, data: ReadableBuffer) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("write_index", "write", memoryview(data).nbytes))

    @hookimpl(wrapper=True)
    def read_range(self, length: int) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("read_range", "read", length))

    @hookimpl(wrapper=True)
    def read_ranges(self, ranges: Sequence[ByteRange]) -> _Wrapper:
        """See `TierHooks`."""
        volume = sum(wanted.length for wanted in ranges)
        return (yield from self._measured("read_ranges", "read", volume))

    @hookimpl(wrapper=True)
    def read_object(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("read_object", "read", _size_of))

    @hookimpl(wrapper=True)
    def stat(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("stat"))

    @hookimpl(wrapper=True)
    def list_objects(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured_listing("list_objects"))

    @hookimpl(wrapper=True)
    def delete(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured("delete"))

    @hookimpl(wrapper=True)
    def list_uploads(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._measured_listing("list_uploads"))

    def _measured(self, hook: str, direction: str = "", volume: int | Callable[[Any], int] = 0) -> _Wrapper:
        attributes = self._attributes_of(hook)
        self._active.add(1, attributes)
        begun = time.perf_counter()
        failed = ""
        try:
            answer = yield
        except BaseException as error:
            failed = _type(error)
            raise
        finally:
            self._over(attributes, time.perf_counter() - begun, failed)
        if direction:
            volume = volume if isinstance(volume, int) else volume(answer)
            self._io.add(volume, {**attributes, "pulsar_offload.io.direction": direction})
        return answer

    def _measured_listing(self, hook: str) -> _Wrapper:
        begun = time.perf_counter()
        try:
            listing = yield
        except BaseException as error:
            attributes = self._attributes_of(hook)
            self._active.add(1, attributes)
            self._over(attributes, time.perf_counter() - begun, _type(error))
            raise
        return self._items(hook, iter(listing), time.perf_counter() - begun)

    def _items(self, hook: str, listing: Iterator[_T], spent_s: float) -> Iterator[_T]:
        attributes = self._attributes_of(hook)
        self._active.add(1, attributes)
        failed = ""
        try:
            while True:
                begun = time.perf_counter()
                try:
                    item = next(listing)
                except StopIteration:
                    return
                except BaseException as error:
                    failed = _type(error)
                    raise
                finally:
                    spent_s += time.perf_counter() - begun
                yield item
        finally:
            self._over(attributes, spent_s, failed)

    def _over(self, attributes: _Attributes, duration_s: float, failed: str) -> None:
        self._active.add(-1, attributes)
        self._calls.add(1, attributes)
        if failed:
            attributes = {**attributes, "error.type": failed}
            self._errors.add(1, attributes)
        self._duration.record(duration_s, attributes)

    def _attributes_of(self, hook: str) -> _Attributes:
        known = self._attributes.get(hook)
        if known is None:
            known = {"pulsar_offload.hook": hook, "pulsar_offload.driver": self._rest.describe().name}
            if self._place:
                known["pulsar_offload.place"] = self._place
            self._attributes[hook] = known
        return known


def _size_of(whole: WholeObject) -> int:
    return whole.stat.size_bytes


def _type(error: BaseException) -> str:
    return type(error).__qualname__
