"""The options of the Spark source: Spark's words (which arrive in lower case) as typed values, and the tier they name.

Source: docs/spark.md, whose table a test holds equal to `KNOWN`.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offload_core.metadata.catalogue import TierReader, TopicName, open_tier, parse_topic
from offload_core.reading.scan import (
    DEFAULT_TASK_BYTES,
    ReadOptions,
    ScanOptions,
    select_catalogue,
    select_topics,
)
from offload_core.reading.scan.options import WORDS, Parser, parse_names, parse_number, parse_truth
from offload_core.reading.scan.positions import Offsets
from offload_core.reading.scan.scanning import payloads_of
from offload_core.reading.scan.scanning import read_options as options_of
from offload_core.storage.tier import parse_layers
from offload_hooks.errors import OptionError
from offload_hooks.json_text import read_json

STORAGE_PREFIX = "storage."
RECORDS_PREFIX = "records."
HOT_PREFIX = "hot."


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a query. Those of `storage` and of `hot_options` are not shown: they may be secret.

    Attributes:
        path: URL, path or name of the tier; None if `driver` and `storage` name it.
        storage_options: options of the driver, as fsspec and pandas have them.
        layers: layers around the driver, outermost first, each as text; None for the driver's own.
        tiers: URLs or paths of tiers from which is read what this one lacks.
        hot: the store of ledgers that are not offloaded yet, and its options.
        catalogue_cache: see `open_tier`.
        topics: names of topics; empty for all (or those of `scan`).
        scan: which of their messages are read, and how.
        stream_start: where a stream without a checkpoint starts, in place of `scan.start`.
    """

    path: str | None = field(default=None, repr=False)
    driver: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    layers: tuple[str, ...] | None = field(default=None, repr=False)
    tiers: tuple[str, ...] = field(default=(), repr=False)
    hot: str | None = None
    hot_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    catalogue_cache: bool = True
    topics: tuple[str, ...] = ()
    min_partitions: int = 1
    max_partition_bytes: int = DEFAULT_TASK_BYTES
    max_bytes_per_trigger: int | None = None
    max_offsets_per_trigger: int | None = None
    refresh_interval_ms: int = 10_000
    scan: ScanOptions = field(default_factory=ScanOptions)
    stream_start: Offsets = "latest"


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check and convert the options of a query.

    Raises:
        OptionError: an unknown option, a value that is none, or two that exclude each other.
    """
    values: dict[str, object] = {}
    scan: dict[str, object] = {}
    storage: dict[str, str] = {}
    records: dict[str, str] = {}
    hot: dict[str, str] = {}
    known = {word.lower(): word for word in KNOWN} | {word.lower(): ours for word, ours in _KAFKAS.items()}
    for name, text in options.items():
        lowered = name.lower()
        if lowered.startswith(STORAGE_PREFIX):
            storage[name[len(STORAGE_PREFIX) :]] = text
            continue
        if lowered.startswith(RECORDS_PREFIX):
            records[name[len(RECORDS_PREFIX) :]] = text
            continue
        if lowered.startswith(HOT_PREFIX):
            hot[name[len(HOT_PREFIX) :]] = text
            continue
        if lowered not in known:
            raise _unknown(name, known)
        target, parse = KNOWN[known[lowered]]
        if target == "topics" and target in values:
            raise OptionError("topics are asked for twice", expected="one of topic, topics, topicsPattern")
        if target in values or target in scan:
            raise OptionError(f"option {known[lowered]} is given twice", found=f"{name}={text}")
        (scan if target in WORDS else values)[target] = parse(text, known[lowered])
    if values.get("topics") and scan.get("topics_pattern"):
        raise OptionError("topics are asked for twice", expected="one of topic, topics, topicsPattern")
    if "path" not in values and "driver" not in values:
        raise OptionError(
            "where is the tier?",
            expected='option "path" (or load(URL)), or "driver" with its "storage.*" options',
            hint=None if options else _NO_OPTIONS,
        )
    if records and "records" not in scan:
        raise OptionError(
            "where are the records?", expected=f'option "records" with the options "{RECORDS_PREFIX}*"'
        )
    if hot and "hot" not in values:
        raise OptionError(
            "which ledger store is the hot tier?", expected=f'option "hot" with the options "{HOT_PREFIX}*"'
        )
    made = ScanOptions(**scan, records_options=records or None)  # type: ignore[arg-type]
    if "start" in scan:
        values["stream_start"] = made.start
    return SourceOptions(**values, storage=storage, hot_options=hot, scan=made)  # type: ignore[arg-type]


_NO_OPTIONS = (
    "A table has the options of its CREATE TABLE only if it was created without columns: CREATE TABLE name USING "
    "pulsar_offload OPTIONS (path …)."
)

_KAFKAS = {
    "subscribe": "topics",
    "subscribePattern": "topicsPattern",
    "startingTimestamp": "startingTime",
    "endingTimestamp": "endingTime",
}
"""Words of Spark's source for Kafka, and ours of the same meaning."""

_NO_BROKER = (
    "No broker is asked: name the bucket by path, its credentials by storage.*, and a running cluster's BookKeeper "
    "by hot."
)
_NO_CONSUMER = "Nothing subscribes or consumes here: leave it out. A stream's checkpoint has what was read."
_ELSEWHERE = {
    "kafka.": "This reads what Pulsar offloaded, not Kafka. Name the bucket by path, and topics by topics.",
    "service.url": _NO_BROKER,
    "admin.url": f"{_NO_BROKER} Records and schemas may come from a broker: records=http://…, schemas=http://….",
    "pulsar.": _NO_BROKER,
    "polltimeoutms": _NO_BROKER,
    "predefinedsubscription": _NO_CONSUMER,
    "subscriptionprefix": _NO_CONSUMER,
    "groupidprefix": _NO_CONSUMER,
    "assign": 'Name partitions as topics: topics="tenant/namespace/topic-partition-0,…".',
    "startingoffsetsbytimestamp": "Times are of all topics: startingTime.",
    "endingoffsetsbytimestamp": "Times are of all topics: endingTime.",
    "waitingfornonexistedtopic": "A stream waits for topics of topicsPattern, and refuses names of absent ones.",
    "allowdifferenttopicschemas": "Without schemas, value is binary whatever a topic's schema is.",
    "includeheaders": "Ask for the column __messageProperties: it has what Kafka's headers have.",
}
"""Beginnings of options of Spark's sources for Kafka and Pulsar that mean nothing here, and what helps instead."""


def _unknown(name: str, known: Mapping[str, str]) -> OptionError:
    lowered = name.lower()
    hint = next((hint for start, hint in _ELSEWHERE.items() if lowered.startswith(start)), None)
    close = difflib.get_close_matches(lowered, known, n=1)
    if hint is None and close:
        hint = f"Did you mean {known[close[0]]!r}?"
    return OptionError(
        f"the source pulsar_offload has no option {name!r}",
        expected=", ".join([*KNOWN, f"{STORAGE_PREFIX}*", f"{RECORDS_PREFIX}*", f"{HOT_PREFIX}*"]),
        hint=hint,
    )


def _text(text: str, _: str) -> str:
    return text


def _parse_mapping(text: str, word: str) -> Mapping[str, Any]:
    found = read_json(text, f"the option {word!r}", error=OptionError)
    if not isinstance(found, dict):
        raise OptionError(f"the option {word!r} is no JSON object", expected='{"region": "eu-west-1"}')
    return found


KNOWN: dict[str, tuple[str, Parser]] = {
    "path": ("path", _text),
    "driver": ("driver", _text),
    "storage_options": ("storage_options", _parse_mapping),
    "layers": ("layers", lambda text, _: parse_layers(text)),
    "tiers": ("tiers", parse_names),
    "hot": ("hot", _text),
    "topic": ("topics", lambda text, _: (text.strip(),)),
    "topics": ("topics", parse_names),
    **{word: (name, parse) for name, (word, parse) in WORDS.items()},
    "minPartitions": ("min_partitions", parse_number),
    "maxPartitionBytes": ("max_partition_bytes", parse_number),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", parse_number),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", parse_number),
    "catalogueCache": ("catalogue_cache", parse_truth),
    "refreshIntervalMs": ("refresh_interval_ms", parse_number),
}
"""Every option but `storage.*`, `records.*` and `hot.*`: its name → its field, and how its text is read."""


def option_texts(path: str | os.PathLike[str] | None, options: Mapping[str, object]) -> dict[str, str]:
    """Options as Spark hands them to a data source; a list is written with commas, a dictionary as JSON."""
    texts = {name.lower(): _option_text(value) for name, value in options.items()}
    return texts if path is None else texts | {"path": os.fspath(path)}


def _option_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return json.dumps(value) if isinstance(value, dict) else str(value)


def open_source(options: SourceOptions) -> TierReader:
    """The tiers that a query's options name."""
    hot = None if options.hot is None else (options.hot, options.hot_options)
    storage: dict[str, Any] = dict(options.storage)
    tier = open_tier(
        options.driver or "" if options.path is None else options.path,
        driver=options.driver,
        layers=options.layers,
        hot=hot,
        catalogue_cache=options.catalogue_cache,
        storage_options=options.storage_options,
        **storage,
    )
    return tier.also(*options.tiers)


def read_options(
    options: SourceOptions, columns: Sequence[str] | None, opened: Callable[[], TierReader]
) -> ReadOptions:
    """The options for reading messages; loads the topics' schemas, from the tier if they are saved there."""
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
