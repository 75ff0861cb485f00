"""Find the copies of each ledger, by records or by listing a tier, and judge them."""

from offload_core.metadata.catalogue.concurrency import concurrently
from offload_core.metadata.catalogue.listing import list_catalogue, with_index
from offload_core.metadata.catalogue.model import Catalogue, Ledger, Problem, StoredObject, Topic, extent_of
from offload_core.metadata.catalogue.record_source import (
    Records,
    RecordSource,
    open_records,
    read_each,
    require_complete,
)
from offload_core.metadata.catalogue.recorded_catalogue import record_catalogue
from offload_core.metadata.catalogue.recorded_copies import RecordedCopy, recorded_copies
from offload_core.metadata.catalogue.tier_reader import TierReader, open_tier
from offload_core.metadata.catalogue.topics import UNKNOWN_TOPIC, TopicName, parse_topic

__all__ = [
    "UNKNOWN_TOPIC",
    "Catalogue",
    "Ledger",
    "Problem",
    "RecordSource",
    "RecordedCopy",
    "Records",
    "StoredObject",
    "TierReader",
    "Topic",
    "TopicName",
    "concurrently",
    "extent_of",
    "list_catalogue",
    "open_records",
    "open_tier",
    "parse_topic",
    "read_each",
    "record_catalogue",
    "recorded_copies",
    "require_complete",
    "with_index",
]
