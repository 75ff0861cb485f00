"""Schema providers, and a topic's schemas as values.

A **schema provider** knows the schemas of topics, which are not in what Pulsar offloads. It is found by entry point
(group `pulsar_offload.schema_providers`): a class or function that takes its options by keyword, all of which may be
text, and answers a `SchemaProvider`. Its repr shows no credential. It is called when a scan is planned, never by the
workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of a topic's schema, as the broker's admin REST gives it.

    Attributes:
        version: what messages carry as `__schemaVersion`, there as a big-endian int64.
        type: Pulsar's name of the schema's type: `AVRO`, `JSON`, `STRING`, `KEY_VALUE` ….
        definition: the definition as text (the REST's `data`); empty for primitive types.
        properties: the schema's properties.
        timestamp_ms: when it was registered; None if it is not known.
    """

    version: int
    type: str
    definition: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaHistory:
    """All versions of a topic's schema, oldest first, at least one.

    `stands_for_all`: the newest was written by whatever version a message names.
    """

    versions: tuple[SchemaVersion, ...]
    stands_for_all: bool = False

    @property
    def newest(self) -> SchemaVersion:
        """The version that readers resolve to, unless they choose another."""
        return self.versions[-1]

    def find(self, version: int) -> SchemaVersion | None:
        """The version of this number; None if there is none."""
        if self.stands_for_all:
            return self.newest
        return next((each for each in self.versions if each.version == version), None)


class SchemaProvider(Protocol):
    """A source of topics' schemas. Calls are synchronous and may come from many threads at once."""

    def history(self, topic: str) -> SchemaHistory | None:
        """All versions of the schema of a topic; None if it has none, or is not known here.

        Args:
            topic: `persistent://tenant/namespace/topic`, of a partitioned topic without `-partition-N`.

        Raises:
            FormatError: a history that is none, with its place.
            StoreError: the source fails, in the terms of `offload_hooks.errors`; without credentials.
        """

    def close(self) -> None:
        """Give back connections. The provider can be used on, and then makes new ones."""
