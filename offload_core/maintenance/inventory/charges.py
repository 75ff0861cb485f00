"""Storage and requests as money, and what it would save to keep the same elsewhere.

Pure arithmetic over counts and prices. Elsewhere is another store, another class, or small ledgers merged into
segments. The months of storage before and after, what moving costs once, and after how many months that is paid.
Nothing is moved here. Source: docs/cost.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offload_core.maintenance.inventory.prices import Tariff
from offload_core.maintenance.inventory.stored_amounts import StoredAmount
from offload_core.storage.tier import Requests
from offload_core.storage.tier.watched_tiers import LIST_PAGE_KEYS
from offload_hooks.errors import OptionError

BEGIN_AND_END = 2
"""Requests of an upload besides its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """An amount that is paid once, in the currency of its prices."""

    requests: float = 0.0
    retrieval: float = 0.0
    egress: float = 0.0

    @property
    def total(self) -> float:
        """The total."""
        return self.requests + self.retrieval + self.egress


def month_of_storage(stored: StoredAmount, tariff: Tariff) -> float:
    """Return what it costs to keep this for a month; small objects as large as the class has them at least."""
    lacking = stored.padding.get(tariff.of_class.minimum_object_bytes, 0)
    return tariff.for_storage(stored.total_bytes + lacking)


def offload_requests(stored: StoredAmount) -> Requests:
    """Return what it took to write this: each part, the beginning and end of each upload, and each index.

    MapFiles are written as files: one request for each.
    """
    uploads = stored.copies - stored.mapfiles
    parts = stored.parts - stored.mapfiles
    return Requests(puts=parts + uploads * (BEGIN_AND_END + 1) + 2 * stored.mapfiles)


def money_of(requests: Requests, tariff: Tariff, *, leaves: bool = False) -> Money:
    """Return what requests cost; what is read is paid for as egress if it `leaves` the provider's network or region."""
    prices = tariff.of_class
    head = prices.get_per_1000 if prices.head_per_1000 is None else prices.head_per_1000
    return Money(
        requests=(
            requests.puts * prices.put_per_1000
            + requests.gets * prices.get_per_1000
            + requests.heads * head
            + requests.lists * prices.list_per_1000
        )
        / 1000,
        retrieval=tariff.for_retrieval(requests.read_bytes),
        egress=tariff.for_egress(requests.read_bytes) if leaves else 0.0,
    )


RANGE_BYTES = 8 << 20
"""Bytes that one request copies."""

_DAYS_A_MONTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A move and its savings; amounts in the one currency of both prices.

    Attributes:
        objects, objects_then: data and index objects before and after.
        month, month_then: storage.
        reading, egress, writing, early: what moving costs once: requests and retrieval here, bytes that leave, requests
            there, and what is paid for objects that are deleted before their class's least days.
        scan, scan_then: requests of one full scan; None without a scan.
        scan_cost, scan_cost_then: what that costs.
    """

    objects: int
    objects_then: int
    month: float
    month_then: float
    reading: float
    egress: float
    writing: float
    early: float
    scan: Requests | None = None
    scan_then: Requests | None = None
    scan_cost: float = 0.0
    scan_cost_then: float = 0.0

    @property
    def once(self) -> float:
        """Return what moving costs."""
        return self.reading + self.egress + self.writing + self.early

    @property
    def saved_a_month(self) -> float:
        """Return what storage costs less then; negative if it costs more."""
        return self.month - self.month_then

    @property
    def months_to_pay(self) -> float | None:
        """Months after which the move has paid for itself; None if it never does."""
        return self.once / self.saved_a_month if self.saved_a_month > 0 else None


def weigh(
    topics: Mapping[str, StoredAmount],
    here: Tariff,
    there: Tariff,
    *,
    leaves: bool = False,
    merge_bytes: int | None = None,
    scan: Requests | None = None,
) -> Saving:
    """`weigh_classes` of what is all of one storage class."""
    return weigh_classes(
        {"": topics}, lambda _: here, there, leaves=leaves, merge_bytes=merge_bytes, scan=scan, scan_at=here
    )


def weigh_classes(
    classes: Mapping[str, Mapping[str, StoredAmount]],
    here: Callable[[str], Tariff],
    there: Tariff,
    *,
    scan_at: Tariff,
    leaves: bool = False,
    merge_bytes: int | None = None,
    scan: Requests | None = None,
) -> Saving:
    """Return what moving these topics from `here` to `there` costs and saves.

    Args:
        classes: topics by their storage class, whose prices `here` has.
        scan_at: prices of a scan now.
        leaves: the move is paid for as egress.
        merge_bytes: approximate size of the segments that a topic's ledgers are merged into; None to merge none.
        scan: requests and bytes of one full scan now.

    Raises:
        OptionError: the prices are of two currencies, or the size is none.
    """
    if scan_at.prices.currency != there.prices.currency:
        raise OptionError(
            "prices of two currencies cannot be compared",
            expected=scan_at.prices.currency,
            found=there.prices.currency,
        )
    if merge_bytes is not None and merge_bytes < 1:
        raise OptionError("segments are of 1 byte at least", found=merge_bytes)
    all_now, all_then = StoredAmount(), StoredAmount()
    month = reading = egress = early = 0.0
    least = there.of_class.minimum_object_bytes
    for name, topics in classes.items():
        tariff, now = here(name), StoredAmount()
        for stored in topics.values():
            now.add(stored)
            all_then.add(stored if merge_bytes is None else _merged(stored, merge_bytes, least))
        all_now.add(now)
        read = Requests(
            gets=now.objects + now.data_bytes // RANGE_BYTES, heads=now.copies, read_bytes=now.total_bytes
        )
        copying = money_of(read, tariff, leaves=leaves)
        month += month_of_storage(now, tariff)
        reading += copying.requests + copying.retrieval
        egress += copying.egress
        unpaid = now.early_byte_days.get(tariff.of_class.minimum_days, 0.0)
        early += tariff.for_storage(unpaid) / _DAYS_A_MONTH
    scan_then = None if scan is None else _scan_of(scan, all_now, all_then)
    return Saving(
        objects=all_now.objects,
        objects_then=all_then.objects,
        month=month,
        month_then=month_of_storage(all_then, there),
        reading=reading,
        egress=egress,
        writing=money_of(offload_requests(all_then), there).requests,
        early=early,
        scan=scan,
        scan_then=scan_then,
        scan_cost=0.0 if scan is None else money_of(scan, scan_at).total,
        scan_cost_then=0.0 if scan_then is None else money_of(scan_then, there).total,
    )


def _merged(stored: StoredAmount, merge_bytes: int, least: int) -> StoredAmount:
    """A topic's ledgers in segments: as many bytes, in parts and objects that are no more than they were."""
    segments = min(stored.copies, max(1, -(-stored.data_bytes // merge_bytes)))
    data, index = stored.data_bytes // segments, stored.other_bytes // segments
    lacking = segments * (max(0, least - data) + max(0, least - index))
    return StoredAmount(
        copies=segments,
        objects=2 * segments,
        data_bytes=stored.data_bytes,
        other_bytes=stored.other_bytes,
        parts=min(stored.parts, max(segments, -(-stored.data_bytes // RANGE_BYTES))),
        padding={least: lacking} if least else {},
    )


def _scan_of(scan: Requests, now: StoredAmount, then: StoredAmount) -> Requests:
    """The same scan afterwards: a lookup and an index fewer for each object; ledgers are still read one by one."""
    fewer = now.copies - then.copies
    return Requests(
        lists=min(scan.lists, -(-then.objects // LIST_PAGE_KEYS)),
        heads=max(0, scan.heads - fewer),
        gets=max(0, scan.gets - fewer),
        puts=scan.puts,
        read_bytes=scan.read_bytes,
    )
