"""The schemas of topics that appear while a stream runs: asked for when they do, and held against its columns.

A stream's columns are fixed when it begins, and executors have the schemas of that moment. Those of later topics go
with the tasks that read them. Source: docs/spark.md, Streaming.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload_core.format.schemas import Payloads
from offload_core.metadata.catalogue import TierReader, Topic, parse_topic
from offload_core.reading.scan import ScanOptions
from offload_core.reading.scan.scanning import payloads_of
from offload_hooks.errors import SchemaError
from offload_hooks.schemas import SchemaHistory

_HINT = (
    "A stream keeps the columns that it began with. Save the topic's schemas (offload schemas pull), begin the query "
    "with a readerSchema that fits all its topics, or leave the topic out of topicsPattern."
)


class NewTopics:
    """The topics that a stream has met since it began.

    Args:
        payloads: the schemas that it began with.
        asked: name who knows those of others.
    """

    def __init__(self, payloads: Payloads, asked: ScanOptions) -> None:
        self._payloads = payloads
        self._asked = ScanOptions(schemas=asked.schemas)
        self._histories: dict[str, SchemaHistory] = {}

    def histories(self, tier: TierReader, topics: Sequence[Topic]) -> dict[str, SchemaHistory]:
        """The schemas of those of the topics that are new; each is asked for once.

        Raises:
            SchemaError: they are not known, or make other columns.
            StoreError: the provider's.
        """
        new = {topic.name.base for topic in topics if topic.name is not None} - set(self._payloads.histories)
        for name in sorted(new - set(self._histories)):
            try:
                found = payloads_of(tier, self._asked, [parse_topic(name)])
                assert found is not None
                self._payloads.with_topics(found.histories).value_fields()
            except SchemaError as error:
                raise SchemaError(
                    f"{name} came after the stream had begun, and cannot be read with its columns: {error}",
                    hint=_HINT,
                ) from error
            self._histories.update(found.histories)
        return {name: self._histories[name] for name in new}
