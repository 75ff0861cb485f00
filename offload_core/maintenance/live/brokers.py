"""Requests to the brokers of a running cluster about a topic: load it anew, offload it, show what it reads.

All but `read_entry` can be repeated. A broker that has the topic not loaded loads it to answer, but for `unload`.
Source: Pulsar's admin REST, `PersistentTopics`, as Pulsar 4.0.8 has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from offload_core.metadata.catalogue.admin_records import admin_path, offloaded_ledgers
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import EntryPosition
from offload_core.storage.pulsar_admin import PulsarAdminClient
from offload_hooks.errors import MetadataError, ObjectNotFoundError, UnknownTopicError, placed

OffloadState = Literal["NOT_RUN", "RUNNING", "SUCCESS", "ERROR"]
_STATES: tuple[OffloadState, ...] = get_args(OffloadState)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersOffload:
    """The state of a broker's own offload of a topic; `error` is the reason of one that failed."""

    state: OffloadState
    error: str = ""


class Brokers:
    """The brokers that a client asks; it is not closed. Errors as of the client."""

    def __init__(self, client: PulsarAdminClient) -> None:
        self._client = client

    def unload(self, topic: TopicName) -> None:
        """Have the broker that has the topic loaded close it; its clients load it again. Of none: nothing."""
        try:
            self._client.put(f"{_path(topic)}/unload")
        except ObjectNotFoundError:
            return

    def offloaded(self, topic: TopicName) -> Mapping[int, bool]:
        """The ledgers of a topic as its broker knows them, and whether it knows of a cold copy.

        Raises:
            UnknownTopicError: there is no such topic.
            MetadataError: an answer of another form.
        """
        path = f"{_path(topic)}/internalStats"
        stats = self._client.get_json(path)
        if stats is None:
            raise UnknownTopicError("a broker knows no such topic", key=path)
        with placed(key=path):
            return offloaded_ledgers(stats)

    def begin_offload(self, topic: TopicName, before: EntryPosition) -> bool:
        """Have the topic's broker offload all ledgers before a position; False if it does that already."""
        position = {"ledgerId": before.ledger_id, "entryId": before.entry_id, "partitionIndex": -1}
        return self._client.put(f"{_path(topic)}/offload", position)

    def offload_state(self, topic: TopicName) -> BrokersOffload:
        """The state of a broker's own offload; `MetadataError`: an answer of another form."""
        path = f"{_path(topic)}/offload"
        answer = self._client.get_json(path)
        found = answer if isinstance(answer, dict) else {}
        for state in _STATES:
            if found.get("status") == state:
                return BrokersOffload(state=state, error=str(found.get("lastError") or ""))
        raise MetadataError("an answer of a broker has another form", key=path, found=repr(answer)[:100])

    def read_entry(self, topic: TopicName, position: EntryPosition) -> bytes | None:
        """The payload of an entry, as the topic's broker reads it, by its read priority; None if it has none there."""
        return self._client.get_bytes(f"{_path(topic)}/ledger/{position.ledger_id}/entry/{position.entry_id}")


def _path(topic: TopicName) -> str:
    return admin_path(managed_ledger_of_topic(topic))
