"""The record of a filter that ran over a ledger's or a segment's entries, in three places:

    index             the whole record, as JSON, in the ledger's metadata
    user metadata     filter and mode, on data and index object
    offload context   the short record, without the causes

Source: docs/formats/filter-record.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from offload_core.format.codec.index import LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.records.offload_context import FILTER_PROPERTY, DriverMetadata, EntryPosition
from offload_hooks.errors import MetadataError, placed
from offload_hooks.json_text import INT64, JsonObject

if TYPE_CHECKING:
    from typing_extensions import Self

RECORD_KEY = FILTER_PROPERTY
"""The key of the record in a ledger's metadata in the index, and of the short record in an offload context."""

VERSION = 1
MARKER_CAUSE = "marker"
_ABORTED = re.compile(r"aborted \((-?[0-9]{1,19}),(-?[0-9]{1,19})\)")


class FilterMode(Enum):
    """Substitute for an entry that is dropped."""

    TOMBSTONE = "tombstone"
    GAP = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedEntries:
    """A number of entries, and the bytes of their payloads."""

    entries: int = 0
    payload_bytes: int = 0

    def __add__(self, other: DroppedEntries) -> DroppedEntries:
        return DroppedEntries(
            entries=self.entries + other.entries, payload_bytes=self.payload_bytes + other.payload_bytes
        )


def aborted_cause(transaction: TransactionId) -> str:
    """The cause of entries of a transaction that was aborted."""
    return f"aborted ({transaction.most_bits},{transaction.least_bits})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRecord:
    """A filter that ran.

    Attributes:
        name: the filter's.
        stop: the first position that it did not decide about; None for no bound.
        kept: the entries that remain.
        total_dropped: all entries that were dropped.
        dropped: by cause; None in a short record.
    """

    name: str
    mode: FilterMode
    stop: EntryPosition | None
    kept: DroppedEntries
    total_dropped: DroppedEntries
    dropped: Mapping[str, DroppedEntries] | None = field(default=None)

    @classmethod
    def of(
        cls,
        name: str,
        mode: FilterMode,
        stop: EntryPosition | None,
        kept: DroppedEntries,
        dropped: Mapping[str, DroppedEntries],
    ) -> Self:
        """A whole record."""
        total = sum(dropped.values(), DroppedEntries())
        return cls(name=name, mode=mode, stop=stop, kept=kept, total_dropped=total, dropped=dropped)

    @property
    def aborted(self) -> Mapping[TransactionId, int]:
        """The number of dropped entries of each aborted transaction."""
        found = ((_ABORTED.fullmatch(cause), each.entries) for cause, each in (self.dropped or {}).items())
        return {TransactionId(int(match[1]), int(match[2])): entries for match, entries in found if match}

    def pack(self, *, short: bool = False) -> str:
        """Encode as JSON; short: without the causes."""
        return json.dumps(self.to_json(short=short), separators=(",", ":"))

    def to_json(self, *, short: bool = False) -> dict[str, Any]:
        """The value of that JSON."""
        fields: dict[str, Any] = {
            "version": VERSION,
            "filter": self.name,
            "mode": self.mode.value,
            "stop": None if self.stop is None else [self.stop.ledger_id, self.stop.entry_id],
            "kept": [self.kept.entries, self.kept.payload_bytes],
            "dropped": [self.total_dropped.entries, self.total_dropped.payload_bytes],
        }
        if not short and self.dropped is not None:
            fields["causes"] = {
                cause: [each.entries, each.payload_bytes] for cause, each in self.dropped.items()
            }
        return fields


def parse_filter_record(text: str | bytes) -> FilterRecord:
    """Decode a record, whole or short.

    Raises:
        MetadataError: it is no filter record.
        UnsupportedVersionError: it has a newer version.
    """
    fields = JsonObject.read(text, "a filter record", error=MetadataError)
    fields.check_version(VERSION)
    stop = None if fields.values.get("stop") is None else fields.integers("stop", length=2, within=INT64)
    causes = None if fields.values.get("causes") is None else fields.nested("causes")
    return FilterRecord(
        name=fields.text("filter"),
        mode=fields.choice("mode", FilterMode),
        stop=None if stop is None else EntryPosition(*stop),
        kept=_count(fields, "kept"),
        total_dropped=_count(fields, "dropped"),
        dropped=None if causes is None else {cause: _count(causes, cause) for cause in causes.values},
    )


def indexed_filter(ledger: LedgerIndex) -> FilterRecord | None:
    """The whole record of the filter that a ledger was written through; None if there was none.

    Raises:
        MetadataError, UnsupportedVersionError: it cannot be read, with the ledger.
    """
    metadata = ledger.metadata
    properties = metadata.custom if isinstance(metadata, LedgerMetadata) else metadata.properties
    packed = dict[str, bytes | str](properties).get(RECORD_KEY)
    if packed is None:
        return None
    with placed(ledger_id=ledger.ledger_id):
        return parse_filter_record(packed)


def recorded_filter(driver: DriverMetadata | None, ledger_id: int) -> FilterRecord | None:
    """The short record of the filter that a copy of a ledger was written through; None if there was none.

    Args:
        driver: of the copy's offload context, or of its segment in that.

    Raises:
        MetadataError, UnsupportedVersionError: it cannot be read, with the ledger.
    """
    text = None if driver is None else driver.get(RECORD_KEY)
    if text is None:
        return None
    with placed(ledger_id=ledger_id):
        return parse_filter_record(text)


def _count(fields: JsonObject, name: str) -> DroppedEntries:
    entries, payload_bytes = fields.integers(name, length=2)
    return DroppedEntries(entries=entries, payload_bytes=payload_bytes)
