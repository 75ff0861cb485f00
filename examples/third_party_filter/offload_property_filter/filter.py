"""`without-property`: messages that have a property are not offloaded. An entry goes if all its messages have it.

It decides of each entry by itself, so it waits for nothing. What it cannot read, it keeps: encrypted entries, and
chunks of a message, which may lie in several ledgers.
"""

from __future__ import annotations

from array import array

from offload_hooks.errors import placed
from offload_hooks.filters import FilteredTopic, Position
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.values import ReadableBuffer
from pulsar_offload import Message, read_messages, split_entry

_MOST_MESSAGE_BYTES = 64 << 20


class PropertyFilter:
    """Drops messages that have a property: with this value, or with any."""

    stop: Position | None = None
    waits_for = ""

    def __init__(self, name: str, value: str | None = None) -> None:
        self._name, self._value = name, value
        self.causes = (f"property {name}" if value is None else f"property {name}={value}",)

    def open(self, topic: FilteredTopic) -> PropertyFilter:
        """The same for every topic."""
        return self

    def look(self, ledger_id: int, entries: EntryBatch) -> ReadableBuffer:
        """1 drops an entry, 0 keeps it."""
        causes = array("i")
        for entry_id, payload in enumerate(entries, entries.first_entry_id):
            with placed(ledger_id=ledger_id, entry_id=entry_id):
                causes.append(self._drops(bytes(payload)))
        return memoryview(causes)

    def _drops(self, payload: bytes) -> bool:
        entry = split_entry(payload)
        if entry.is_raw:
            return False
        messages = read_messages(entry, max_message_bytes=_MOST_MESSAGE_BYTES)
        return bool(messages) and all(map(self._has, messages))

    def _has(self, message: Message) -> bool:
        found = (each.value for each in message.metadata.properties if each.key == self._name)
        return any(self._value in (None, value) for value in found)
