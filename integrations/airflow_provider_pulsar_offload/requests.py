"""Requests to an admin REST that offload a topic, as those of `pulsar-admin topics offload`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from offload_core.metadata.catalogue import parse_topic
from offload_core.storage.pulsar_admin import PulsarAdminClient
from offload_hooks.errors import MetadataError, StoreError, StoreTimeoutError, UnknownTopicError


def ask_for_offload(
    client: PulsarAdminClient, path: str, kept_bytes: int, *, timeout_s: float, poll_interval_s: float
) -> int | None:
    """Have the broker begin; the first ledger that stays hot, None where none lies before it.

    An offload that runs already may have been asked for less: its end is waited for, and all is asked for again.

    Raises:
        StoreTimeoutError: it has not ended in that time. StoreError: the admin REST refuses.
        UnknownTopicError: it knows no such topic.
    """
    deadline = time.monotonic() + timeout_s
    stop = first_kept(_answer(client, f"{path}/internalStats"), kept_bytes)
    if stop is None:
        return None
    while not client.put(f"{path}/offload", {"ledgerId": stop, "entryId": 0, "partitionIndex": -1}):
        _sleep(path, poll_interval_s, timeout_s, deadline)
    return stop


def wait_for_offload(
    client: PulsarAdminClient, path: str, *, timeout_s: float, poll_interval_s: float
) -> None:
    """Until it has ended.

    Raises:
        StoreTimeoutError: it has not, in that time. StoreError: it has failed.
    """
    deadline = time.monotonic() + timeout_s
    while (status := _answer(client, f"{path}/offload")).get("status") == "RUNNING":
        _sleep(path, poll_interval_s, timeout_s, deadline)
    if status.get("status") == "ERROR":
        raise StoreError("the offload has failed", key=path, found=status.get("lastError"))


def topic_paths(client: PulsarAdminClient, topic: str) -> list[str]:
    """Where the admin REST has the topic, or each of its partitions."""
    tenant, namespace, name = parse_topic(topic).full.removeprefix("persistent://").split("/", 2)
    path = f"/admin/v2/persistent/{tenant}/{namespace}/{quote(name, safe='')}"
    count = (client.get_json(f"{path}/partitions") or {}).get("partitions", 0)
    return [f"{path}-partition-{number}" for number in range(count)] or [path]


def first_kept(stats: Mapping[str, Any], kept_bytes: int) -> int | None:
    """The first ledger that stays hot by `internalStats`; None where none lies before it."""
    ledgers = stats.get("ledgers")
    if not isinstance(ledgers, list):
        raise MetadataError("an answer of a broker has another form", expected="ledgers")
    if len(ledgers) < 2:
        return None
    sizes = [int(each.get("size", 0)) for each in ledgers]
    sizes[-1] = int(stats.get("currentLedgerSize", sizes[-1]))
    first, held = len(ledgers) - 1, sizes[-1]
    while first > 0 and held + sizes[first - 1] <= kept_bytes:
        first -= 1
        held += sizes[first]
    return int(ledgers[first]["ledgerId"]) if first else None


def _answer(client: PulsarAdminClient, path: str) -> Any:
    answer = client.get_json(path)
    if answer is None:
        raise UnknownTopicError("the broker knows no such topic", found=path)
    return answer


def _sleep(path: str, interval_s: float, timeout_s: float, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise StoreTimeoutError(f"an offload has not ended within {timeout_s:g} s", key=path)
    time.sleep(interval_s)
