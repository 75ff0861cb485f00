"""The options of the Spark source, spelled out: Spark's words (which arrive in lower case) → typed values.

Source: docs/spark.md, whose table a test holds equal to `KNOWN`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from offload_core.messages.encryption import CryptoFailureAction
from offload_core.messages.schema import Level, Mode
from offload_core.scan import DEFAULT_TASK_BYTES, Offsets, parse_offsets
from offload_core.scan.opening import key_provider_spec
from offload_core.scan.tasks import (
    DEFAULT_CHUNK_LOOK_BACK_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_CHUNK_BYTES,
    Chunks,
    KeyProviderSpec,
)
from offload_core.tier import parse_layers
from offload_hooks.errors import OptionError

STORAGE_PREFIX = "storage."


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query asks of the source. Only the names of `storage` options are shown: their values may be secret.

    Attributes:
        path: URL or path of the tier; None if `driver` and `storage` say where it is.
        topics: names of topics; empty for all (or those of `topics_pattern`, or of `ledger`).
        records: path or URL of managed ledgers' records; None to list the tier.
        layers: what stands before the driver, outermost first, each as text; None for what the driver asks for.
        level: `messages` or `entries`.
        columns: the columns, None for the default ones.
    """

    path: str | None = None
    driver: str | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    layers: tuple[str, ...] | None = field(default=None, repr=False)
    prefix: str = ""
    records: str | None = None
    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    ledger: int | None = None
    cluster: str | None = None
    level: Level = "messages"
    columns: tuple[str, ...] | None = None
    starting_offsets: Offsets = "earliest"
    ending_offsets: Offsets = "latest"
    min_partitions: int = 1
    max_partition_bytes: int = DEFAULT_TASK_BYTES
    fail_on_data_loss: bool = True
    verify_checksums: bool = True
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    mode: Mode = "FAILFAST"
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
    for name, text in options.items():
        lowered = name.lower()
        if lowered.startswith(STORAGE_PREFIX):
            storage[name[len(STORAGE_PREFIX) :]] = text
            continue
        known = {word.lower(): word for word in KNOWN}
        if lowered not in known:
            close = difflib.get_close_matches(lowered, known, n=1)
            raise OptionError(
                f"the source pulsar_offload has no option {name!r}",
                expected=", ".join([*KNOWN, f"{STORAGE_PREFIX}*"]),
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
    return SourceOptions(**values, storage=storage)  # type: ignore[arg-type]


def _text(text: str, _: str) -> str:
    return text


def _names(text: str, option: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"option {option} is empty", expected="names, with commas between them")
    return names


def _number(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise OptionError(f"option {option} is not a number", expected="1 or more", found=text)
    return int(text)


def _ledger(text: str, option: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option {option} is not a ledger's id", expected="0 or more", found=text)
    return int(text)


def _truth(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {option} is neither true nor false", expected="true or false", found=text)
    return text.lower() == "true"


KNOWN: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "path": ("path", _text),
    "driver": ("driver", _text),
    "layers": ("layers", lambda text, _: parse_layers(text)),
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
    "minPartitions": ("min_partitions", _number),
    "maxPartitionBytes": ("max_partition_bytes", _number),
    "failOnDataLoss": ("fail_on_data_loss", _truth),
    "verifyChecksums": ("verify_checksums", _truth),
    "maxMessageBytes": ("max_message_bytes", _number),
    "mode": ("mode", lambda text, _: text.upper()),
    "keyProvider": ("key_provider", lambda text, _: key_provider_spec(text)),
    "cryptoFailureAction": ("crypto_failure_action", lambda text, _: text.upper()),
    "chunks": ("chunks", lambda text, _: text.lower()),
    "chunkLookBackBytes": ("chunk_look_back_bytes", _number),
    "maxPendingChunkBytes": ("max_pending_chunk_bytes", _number),
}
"""Every option but `storage.*`: its name → the field of `SourceOptions` and how its text is read."""
