"""A broker's admin REST: namespaces and what they offload to, topics and the ledgers that they are made of.

Whether BookKeeper still has a ledger is asked of the bookie: the broker's `internalStats` shows metadata from
whichever copy it would read.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

DONE_WITHIN_S = 120.0


class AdminError(Exception):
    """The broker refused a request, or an offload failed or did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLedger:
    """A ledger of a topic, as the broker describes it.

    Attributes:
        offloaded: whether it is complete in cold storage.
        in_bookkeeper: whether BookKeeper has it too.
        uuid: of the last attempt to offload it.
    """

    ledger_id: int
    entries: int
    offloaded: bool
    in_bookkeeper: bool
    uuid: UUID | None


class PulsarAdmin:
    """The admin REST at `endpoint`. Topics are written `persistent://tenant/namespace/topic`.

    Args:
        endpoint: the broker's URL.
        bookie_endpoint: that of the REST of its only bookie.
    """

    def __init__(self, endpoint: str, bookie_endpoint: str) -> None:
        self._endpoint = endpoint
        self._bookie_endpoint = bookie_endpoint

    def make_namespace(self, namespace: str, offload: Mapping[str, object], *, cluster: str) -> str:
        """Make a namespace `tenant/name`, and the tenant if need be, with these offload policies; its name."""
        tenant = namespace.partition("/")[0]
        if tenant not in self._ask("GET", "/tenants"):
            self._ask("PUT", f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [cluster]})
        self._ask("PUT", f"/namespaces/{namespace}", {})
        self.set_offload_policies(namespace, offload)
        return namespace

    def set_offload_policies(self, namespace: str, offload: Mapping[str, object]) -> None:
        """What the namespace's topics are offloaded to, and read from, as soon as they are loaded the next time."""
        self._ask("POST", f"/namespaces/{namespace}/offloadPolicies", dict(offload))

    def make_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Make a topic of so many partitions, `topic-partition-0` and so on."""
        self._ask("PUT", f"{_path(topic)}/partitions", partitions)

    def ledgers(self, topic: str) -> list[TopicLedger]:
        """A topic's ledgers in their order; the last one is open. Loads the topic."""
        stats = self._ask("GET", f"{_path(topic)}/internalStats")["ledgers"]
        records = self._ask("GET", f"{_path(topic)}/internal-info")["ledgers"]
        in_bookkeeper = {int(each) for each in _request("GET", f"{self._bookie_endpoint}/api/v1/ledger/list")}
        uuids = {record["ledgerId"]: record.get("offloadedContextUuid") for record in records}
        return [
            TopicLedger(
                ledger_id=ledger["ledgerId"],
                entries=ledger["entries"],
                offloaded=ledger["offloaded"],
                in_bookkeeper=ledger["ledgerId"] in in_bookkeeper,
                uuid=None if uuids[ledger["ledgerId"]] is None else UUID(uuids[ledger["ledgerId"]]),
            )
            for ledger in stats
        ]

    def delete(self, topic: str) -> None:
        """Delete the topic, its subscriptions and producers with it; its name is known no more."""
        self._ask("DELETE", _path(topic), query="force=true")

    def unload(self, topic: str) -> None:
        """Have the broker forget the topic, which closes its ledger and drops its caches and read handles."""
        self._ask("PUT", f"{_path(topic)}/unload")

    def offload_all(self, topic: str) -> list[TopicLedger]:
        """Close the topic's ledger, offload all that are closed, and return these."""
        self.unload(topic)
        open_ledger = self.ledgers(topic)[-1].ledger_id
        bound = {"ledgerId": open_ledger, "entryId": 0, "partitionIndex": -1}
        self._ask("PUT", f"{_path(topic)}/offload", bound)  # answered before it has begun
        deadline = time.monotonic() + DONE_WITHIN_S
        while (status := self._ask("GET", f"{_path(topic)}/offload"))["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise AdminError(f"{topic} is not offloaded within {DONE_WITHIN_S:.0f} s")
            time.sleep(0.02)
        if status["status"] != "SUCCESS":
            raise AdminError(f"{topic} was not offloaded: {status}")
        return [ledger for ledger in self.ledgers(topic) if ledger.ledger_id != open_ledger]

    def drop_bookkeeper_copies(self, topic: str) -> None:
        """Have the broker delete the BookKeeper copy of all that is offloaded, by a deletion lag of 0."""
        self._ask("POST", f"{_path(topic)}/trim")  # answered before it has begun
        deadline = time.monotonic() + DONE_WITHIN_S
        while held := [each for each in self.ledgers(topic) if each.offloaded and each.in_bookkeeper]:
            if time.monotonic() > deadline:
                raise AdminError(f"{topic} is still in BookKeeper after {DONE_WITHIN_S:.0f} s: {held}")
            time.sleep(0.02)

    def backlog(self, topic: str, subscription: str) -> int:
        """How many entries it has not acknowledged, markers and the like included until the broker passed them."""
        stats = self._ask("GET", f"{_path(topic)}/stats", query="getPreciseBacklog=true")
        found: int = stats["subscriptions"][subscription]["msgBacklog"]
        return found

    def message_id_at(self, topic: str, time_ms: int) -> tuple[int, int]:
        """Ledger and entry of the first message that was published then or later."""
        found = self._ask("GET", f"{_path(topic)}/messageid/{time_ms}")
        return found["ledgerId"], found["entryId"]

    def schema(self, topic: str, version: int | None = None) -> dict[str, Any]:
        """What the broker tells of a version of a topic's schema; None for the newest."""
        name = topic.removeprefix("persistent://")
        found: dict[str, Any] = self._ask(
            "GET", f"/schemas/{name}/schema" + ("" if version is None else f"/{version}")
        )
        return found

    def compact(self, topic: str) -> None:
        """Compact the topic, and return when that is done."""
        self._ask("PUT", f"{_path(topic)}/compaction")
        deadline = time.monotonic() + DONE_WITHIN_S
        while (status := self._ask("GET", f"{_path(topic)}/compaction"))["status"] != "SUCCESS":
            if status["status"] == "ERROR" or time.monotonic() > deadline:
                raise AdminError(f"{topic} was not compacted: {status}")
            time.sleep(0.02)

    def _ask(self, method: str, path: str, body: object = None, query: str = "") -> Any:
        return _request(method, f"{self._endpoint}/admin/v2{path}?{query}", body)


def _path(topic: str) -> str:
    return "/" + topic.replace("://", "/")


def _request(method: str, url: str, body: object = None) -> Any:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    try:
        headers = {} if body is None else {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, f"{parts.path}?{parts.query}", content, headers)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status >= 300:
        raise AdminError(f"{method} {url} was answered by {answer.status}: {text.decode(errors='replace')}")
    return json.loads(text) if text else None
