"""What a query's options name: the tier, and how its messages are read, with the topics' schemas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from offload_core.api import TierReader, open_tier
from offload_core.scan import ReadOptions, Selection, select_topics
from offload_core.spark.options import SourceOptions


def open_source(options: SourceOptions) -> TierReader:
    """The tiers that a query's options name."""
    if options.path is None:
        tier = open_tier(options.driver or "", layers=options.layers, **options.storage)
    else:
        tier = open_tier(options.path, driver=options.driver, layers=options.layers, **options.storage)
    return tier.also(*options.tiers)


def read_options(
    options: SourceOptions, columns: tuple[str, ...] | None, opened: Callable[[], TierReader]
) -> ReadOptions:
    """How the messages are read; the topics' schemas are asked for here, in the tier if they are kept there."""
    read = ReadOptions(
        level=options.level,
        columns=columns,
        verify_checksums=options.verify_checksums,
        max_message_bytes=options.max_message_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        isolation=options.isolation,
        mode=options.mode,
        key_provider=options.key_provider,
        crypto_failure_action=options.crypto_failure_action,
        chunks=options.chunks,
        chunk_look_back_bytes=options.chunk_look_back_bytes,
        max_pending_chunk_bytes=options.max_pending_chunk_bytes,
    )
    if options.schemas is not None:
        with opened() as tier:
            payloads = tier.payloads(
                options.schemas,
                _topics(options, tier),
                reader_schema=options.reader_schema,
                mode=options.mode,
                corrupt_column=options.corrupt_column,
            )
        read = replace(read, payloads=payloads)
    read.check()
    return read


def _topics(options: SourceOptions, tier: TierReader) -> list[str]:
    """The topics whose schemas are asked for: those that are named, or all that the other options choose."""
    if options.topics:
        return list(options.topics)
    selection = Selection(
        topics_pattern=options.topics_pattern, ledger_id=options.ledger, cluster=options.cluster
    )
    catalogue = tier.look(
        selection,
        prefix=options.prefix,
        records=options.records,
        records_options=options.records_options,
        read_indexes=False,
    )
    topics = select_topics(catalogue, selection)
    return [str(topic.name) for topic in topics if topic.name is not None]
