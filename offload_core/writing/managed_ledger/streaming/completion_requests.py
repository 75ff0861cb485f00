"""Requests to complete the segment that a topic's owner writes, by any process that has the topic's record.

    request     a mark goes into the record
    answer      the owner completes its segment, and then takes away the marks that were there before
    wait        until the mark is gone: then what was appended before the request is in the tier, or the answer has
                what the rest waits for

Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from functools import partial
from uuid import uuid4

from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.managed_ledger.owned_record import get_property, owner_of, with_property
from offload_hooks.errors import OptionError, StoreTimeoutError, UnknownTopicError

REQUESTS_PROPERTY = "pulsar-offload.complete-segment"
"""The marks of requests to complete the segment, with commas between them."""

WAITS_PROPERTY = "pulsar-offload.segment-waits"
"""The reason why entries were left out of the last answer."""

DEFAULT_TIMEOUT_S = 60.0
_LOOKS_S = 0.2


def requests_of(info: ManagedLedgerInfo) -> tuple[str, ...]:
    """The marks of requests."""
    text = get_property(info, REQUESTS_PROPERTY)
    return tuple(text.split(",")) if text else ()


def with_request(info: ManagedLedgerInfo, mark: str) -> ManagedLedgerInfo:
    """Add this mark."""
    return _with_requests(info, dict.fromkeys([*requests_of(info), mark]))


def waits_of(info: ManagedLedgerInfo) -> str | None:
    """The reason why the last answer did not bring all entries to the tier, in words; None if it did."""
    return get_property(info, WAITS_PROPERTY)


def with_answer(info: ManagedLedgerInfo, marks: Collection[str], waits_for: str | None) -> ManagedLedgerInfo:
    """Remove these marks, and set the reason why entries are not in the tier; None if all are."""
    return with_property(without_requests(info, marks), WAITS_PROPERTY, waits_for)


def without_requests(info: ManagedLedgerInfo, marks: Collection[str]) -> ManagedLedgerInfo:
    """Remove these marks."""
    return _with_requests(info, [mark for mark in requests_of(info) if mark not in marks])


def request_completion(
    records: ManagedLedgerRecords,
    name: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    wait: Callable[[float], None] = time.sleep,
) -> ManagedLedgerInfo:
    """Have a topic's owner complete the segment that it writes; return the record after that.

    All that was appended before the call is in the tier when it returns, up to what the topic's filter does not decide
    of yet: see `waits_of`.

    The owner answers in its upkeep, so within one interval of that and the time that the upload takes.

    Args:
        timeout_s: how long the answer may take; then the request is withdrawn.
        wait: called between two reads of the record, with the seconds to the next.

    Raises:
        UnknownTopicError: there is no such managed ledger.
        OptionError: no process has it open, or not any more.
        StoreTimeoutError: no answer came in time; what is appended stays safe, and it can be asked again.
    """
    mark, until = uuid4().hex, time.monotonic() + timeout_s
    withdraw = partial(without_requests, marks=[mark])

    def request(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
        _check_open(info, name)
        return with_request(info, mark)

    info = records.update(name, request).info
    while mark in requests_of(info):
        try:
            _check_open(info, name)  # its owner may have closed it meanwhile
        except OptionError:
            records.update(name, withdraw)
            raise
        if time.monotonic() >= until:
            records.update(name, withdraw)
            raise StoreTimeoutError(
                f"the owner of {name} did not complete its segment in time",
                expected=f"an answer within {timeout_s:g} s",
                hint="The process that has it open must run, and keep it by an UpkeepLoop; its log has the reason.",
            )
        wait(_LOOKS_S)
        known = records.read(name)
        if known is None:
            raise UnknownTopicError("the topic was deleted meanwhile", found=name)
        info = known.info
    return info


def _check_open(info: ManagedLedgerInfo, name: str) -> None:
    if owner_of(info) is None:
        raise OptionError(
            f"no process has {name} open that could complete its segment",
            hint="The next owner of the topic completes it.",
        )


def _with_requests(info: ManagedLedgerInfo, marks: Collection[str]) -> ManagedLedgerInfo:
    return with_property(info, REQUESTS_PROPERTY, ",".join(marks) or None)
