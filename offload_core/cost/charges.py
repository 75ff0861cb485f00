"""What is stored and asked for, as money: pure arithmetic over counts and prices."""

from __future__ import annotations

from dataclasses import dataclass

from offload_core.cost.prices import Tariff
from offload_core.cost.stored import Stored
from offload_core.tier import Requests

BEGIN_AND_END = 2
"""Requests of an upload besides its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """What something costs once, in the currency of its prices."""

    requests: float = 0.0
    retrieval: float = 0.0
    egress: float = 0.0

    @property
    def total(self) -> float:
        """All of it."""
        return self.requests + self.retrieval + self.egress


def month_of_storage(stored: Stored, tariff: Tariff) -> float:
    """What it costs to keep this for a month; small objects as large as the class has them at least."""
    lacking = stored.padding.get(tariff.of_class.minimum_object_bytes, 0)
    return tariff.for_storage(stored.total_bytes + lacking)


def offload_requests(stored: Stored) -> Requests:
    """What it took to write this: each part, the beginning and end of each upload, and each index.

    MapFiles are written as files: one request for each.
    """
    uploads = stored.copies - stored.mapfiles
    parts = stored.parts - stored.mapfiles
    return Requests(puts=parts + uploads * (BEGIN_AND_END + 1) + 2 * stored.mapfiles)


def money_of(requests: Requests, tariff: Tariff, *, leaves: bool = False) -> Money:
    """What requests cost; what is read is paid for as egress if it `leaves` the provider's network or region."""
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
