"""The options of the Spark source, spelled out: Spark's words (which arrive in lower case) → typed values.

Source: docs/spark.md, whose table a test holds equal to `KNOWN`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from offload_core.messages.encryption import CryptoFailureAction
from offload_core.messages.schema import MODES, Level, Mode
from offload_core.scan import DEFAULT_TASK_BYTES, Offsets, parse_offsets
from offload_core.scan.opening import key_provider_spec
from offload_core.scan.tasks import (
    DEFAULT_CHUNK_LOOK_BACK_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_CHUNK_BYTES,
    DEFAULT_TIME_SLACK_MS,
    Chunks,
    Isolation,
    KeyProviderSpec,
)
from offload_core.schemas import CORRUPT_RECORD
from offload_core.tier import parse_layers
from offload_hooks.errors import OptionError
from offload_hooks.json_text import whole_number

STORAGE_PREFIX = "storage."
RECORDS_PREFIX = "records."


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query asks of the source. Options of `storage` and `records` are not shown: they may be secret.

    Attributes:
        path: URL or path of the tier; None if `driver` and `storage` say where it is.
        topics: names of topics; empty for all (or those of `topics_pattern`, or of `ledger`).
        records: path or URL of managed ledgers' records; None to list the tier.
        records_options: the options of that place.
        layers: what stands before the driver, outermost first, each as text; None for what the driver asks for.
        tiers: URLs or paths of tiers from which is read what this one lacks.
        level: `messages` or `entries`.
        columns: the columns, None for the default ones.
        starting_time, ending_time, time_slack: in milliseconds (since the epoch).
        schemas: who knows the topics' schemas; None to leave `value` as it is.
    """

    path: str | None = field(default=None, repr=False)
    driver: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    layers: tuple[str, ...] | None = field(default=None, repr=False)
    tiers: tuple[str, ...] = field(default=(), repr=False)
    prefix: str = ""
    records: str | None = field(default=None, repr=False)
    records_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    ledger: int | None = None
    cluster: str | None = None
    level: Level = "messages"
    columns: tuple[str, ...] | None = None
    starting_offsets: Offsets = "earliest"
    ending_offsets: Offsets = "latest"
    starting_time: int | None = None
    ending_time: int | None = None
    time_slack: int = DEFAULT_TIME_SLACK_MS
    min_partitions: int = 1
    max_partition_bytes: int = DEFAULT_TASK_BYTES
    fail_on_data_loss: bool = True
    verify_checksums: bool = True
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    schemas: str | None = field(default=None, repr=False)
    reader_schema: str | None = None
    mode: Mode = "FAILFAST"
    corrupt_column: str = CORRUPT_RECORD
    max_bytes_per_trigger: int | None = None
    max_offsets_per_trigger: int | None = None
    refresh_interval_ms: int = 10_000
    isolation: Isolation = "committed"
    summaries: str | None = None
    key_provider: KeyProviderSpec | None = None
    crypto_failure_action: CryptoFailureAction | None = None
    chunks: Chunks = "joined"
    chunk_look_back_bytes: int = DEFAULT_CHUNK_LOOK_BACK_BYTES
    max_pending_chunk_bytes: int = DEFAULT_MAX_PENDING_CHUNK_BYTES


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check and convert the options of a query.

    Raises:
        OptionError: an unknown option, a value that is none, or two that exclude each other.
    """
    values: dict[str, object] = {}
    storage: dict[str, str] = {}
    records: dict[str, str] = {}
    for name, text in options.items():
        lowered = name.lower()
        if lowered.startswith(STORAGE_PREFIX):
            storage[name[len(STORAGE_PREFIX) :]] = text
            continue
        if lowered.startswith(RECORDS_PREFIX):
            records[name[len(RECORDS_PREFIX) :]] = text
            continue
        known = {word.lower(): word for word in KNOWN}
        if lowered not in known:
            close = difflib.get_close_matches(lowered, known, n=1)
            raise OptionError(
                f"the source pulsar_offload has no option {name!r}",
                expected=", ".join([*KNOWN, f"{STORAGE_PREFIX}*", f"{RECORDS_PREFIX}*"]),
                hint=f"Did you mean {known[close[0]]!r}?" if close else None,
            )
        target, convert = KNOWN[known[lowered]]
        if target in values:
            raise OptionError("topics are asked for twice", expected="one of topic, topics, topicsPattern")
        values[target] = convert(text, known[lowered])
    if values.get("topics") and values.get("topics_pattern"):
        raise OptionError("topics are asked for twice", expected="one of topic, topics, topicsPattern")
    if "path" not in values and "driver" not in values:
        raise OptionError(
            "where is the tier?",
            expected='option "path" (or load(URL)), or "driver" with its "storage.*" options',
        )
    if records and "records" not in values:
        raise OptionError(
            "where are the records?", expected=f'option "records" with the options "{RECORDS_PREFIX}*"'
        )
    return SourceOptions(**values, storage=storage, records_options=records)  # type: ignore[arg-type]


def _text(text: str, _: str) -> str:
    return text


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"option {option} is empty", expected="names, with commas between them")
    return names


def _number(text: str, option: str) -> int:
    number = whole_number(text)
    if not number:
        raise OptionError(f"option {option} is not a number", expected="1 or more", found=text)
    return number


def _ledger(text: str, option: str) -> int:
    ledger_id = whole_number(text)
    if ledger_id is None:
        raise OptionError(f"option {option} is not a ledger's id", expected="0 or more", found=text)
    return ledger_id


def _milliseconds(text: str, option: str) -> int:
    milliseconds = whole_number(text)
    if milliseconds is None:
        raise OptionError(
            f"option {option} is not a number of milliseconds", expected="0 or more", found=text
        )
    return milliseconds


def _truth(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {option} is neither true nor false", expected="true or false", found=text)
    return text.lower() == "true"


def _mode(text: str, option: str) -> Mode:
    for mode in MODES:
        if text.upper() == mode:
            return mode
    raise OptionError(f"option {option} is no mode", expected=", ".join(MODES), found=text)


KNOWN: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "path": ("path", _text),
    "driver": ("driver", _text),
    "layers": ("layers", lambda text, _: parse_layers(text)),
    "tiers": ("tiers", _names),
    "prefix": ("prefix", _text),
    "records": ("records", _text),
    "topic": ("topics", lambda text, _: (text.strip(),)),
    "topics": ("topics", _names),
    "topicsPattern": ("topics_pattern", _text),
    "ledger": ("ledger", _ledger),
    "cluster": ("cluster", _text),
    "level": ("level", _text),
    "columns": ("columns", _names),
    "startingOffsets": ("starting_offsets", parse_offsets),
    "endingOffsets": ("ending_offsets", parse_offsets),
    "startingTime": ("starting_time", _milliseconds),
    "endingTime": ("ending_time", _milliseconds),
    "timeSlack": ("time_slack", _milliseconds),
    "minPartitions": ("min_partitions", _number),
    "maxPartitionBytes": ("max_partition_bytes", _number),
    "failOnDataLoss": ("fail_on_data_loss", _truth),
    "verifyChecksums": ("verify_checksums", _truth),
    "isolation": ("isolation", _text),
    "summaries": ("summaries", _text),
    "schemas": ("schemas", _text),
    "readerSchema": ("reader_schema", _text),
    "mode": ("mode", _mode),
    "columnNameOfCorruptRecord": ("corrupt_column", _text),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _number),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _number),
    "refreshIntervalMs": ("refresh_interval_ms", _number),
    "maxMessageBytes": ("max_message_bytes", _number),
    "keyProvider": ("key_provider", lambda text, _: key_provider_spec(text)),
    "cryptoFailureAction": ("crypto_failure_action", lambda text, _: text.upper()),
    "chunks": ("chunks", lambda text, _: text.lower()),
    "chunkLookBackBytes": ("chunk_look_back_bytes", _number),
    "maxPendingChunkBytes": ("max_pending_chunk_bytes", _number),
}
"""Every option but `storage.*` and `records.*`: its name → the field of `SourceOptions` and how its text is read."""
