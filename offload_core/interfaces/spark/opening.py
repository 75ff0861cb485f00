"""What a query's options name: the tier, and how its messages are read, with the topics' schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload_core.interfaces.spark.options import SourceOptions
from offload_core.metadata.catalogue import TierReader, TopicName, open_tier, parse_topic
from offload_core.reading.scan import ReadOptions, select_catalogue, select_topics
from offload_core.reading.scan.scanning import payloads_of
from offload_core.reading.scan.scanning import read_options as options_of


def open_source(options: SourceOptions) -> TierReader:
    """The tiers that a query's options name."""
    if options.path is None:
        tier = open_tier(options.driver or "", layers=options.layers, **options.storage)
    else:
        tier = open_tier(options.path, driver=options.driver, layers=options.layers, **options.storage)
    return tier.also(*options.tiers)


def read_options(
    options: SourceOptions, columns: Sequence[str] | None, opened: Callable[[], TierReader]
) -> ReadOptions:
    """How the messages are read; the topics' schemas are asked for here, in the tier if they are kept there."""
    asked = options.scan.having(columns=columns)
    payloads = None
    if asked.schemas is not None:
        with opened() as tier:
            payloads = payloads_of(tier, asked, _topics(options, tier))
    read = options_of(asked, payloads=payloads)
    read.check()
    return read


def _topics(options: SourceOptions, tier: TierReader) -> list[TopicName]:
    """The topics whose schemas are asked for: those that are named, or all that the other options choose."""
    if options.topics:
        return [parse_topic(topic) for topic in options.topics]
    selection = options.scan.selection(())
    topics = select_topics(select_catalogue(tier, selection, options.scan, read_indexes=False), selection)
    return [topic.name for topic in topics if topic.name is not None]
