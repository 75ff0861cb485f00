"""The options of a scan: one value for Python, Spark and the command line, and one way to read each from text.

Fields have the names that Python uses. `WORDS` has the name that Spark uses; the command line has the same in kebab
case (`startingOffsets`, `--starting-offsets`). Source: docs/spark.md, docs/cli.md.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from offload_core.format.messages.encryption import CRYPTO_FAILURE_ACTIONS, CryptoFailureAction
from offload_core.format.messages.message_columns import MODES, Level, Mode
from offload_core.format.schemas import CORRUPT_RECORD, Payloads
from offload_core.metadata.catalogue import RecordSource
from offload_core.metadata.records import ReadPriority, parse_read_priority
from offload_core.reading.scan.positions import Offsets, parse_offsets
from offload_core.reading.scan.pruning import Time, parse_time
from offload_core.reading.scan.select import Selection
from offload_core.reading.scan.tasks import (
    DEFAULT_CHUNK_LOOK_BACK_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_CHUNK_BYTES,
    DEFAULT_TIME_SLACK_MS,
    DEFAULT_TRANSACTION_SEARCH_BYTES,
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    Chunks,
    Isolation,
)
from offload_core.reading.schema_providers import SchemaSource
from offload_core.storage.tier import PluginGiven, PluginSpec, plugin_spec
from offload_hooks.errors import OptionError
from offload_hooks.json_text import whole_number


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """The messages of the topics that are read, and how. Places and keys are not shown: they may contain secrets.

    What is wrong with a value is an `OptionError` of the scan, except where another error is named.

    Attributes:
        topics_pattern: instead of names of topics, a regular expression that the whole name must match. Default: None.
        ledger: the id of the only ledger to read; without topics also of objects that name none. Default: None.
            `UnknownLedgerError`.
        cluster: read only what this Pulsar cluster offloaded; needed where two share a bucket and name a topic alike.
            Default: None.
        prefix: read only objects whose keys begin so; with `records` the folder that they lie in. Default: empty.
        records: managed ledgers' records, which name the ledgers to read: a path, a URL, or records by topic.
            Default: None, list the tier. `FormatError`, `PluginError`, `StoreError`.
        records_options: the options of that place, by name. Without any, a URL of the tier's own driver is opened with
            the tier's options.
        tiered_read_priority: the copies that are read, of a tier with a hot one: in Pulsar's words, or
            `OFFLOADED_ONLY`, `BOOKKEEPER_ONLY`. Default: None, that of a topic's policies where they lie beside its
            records, else `tiered-storage-first`.
        level: `messages`, or `entries` as they are stored. Default: `messages`.
        columns: the columns to make, in this order (docs/columns.md). Default: None, those of the level.
        start: where to start, inclusive: `earliest`, `latest`, or a position per topic. Default: `earliest`.
            `DataLossError` if its ledger is not there.
        stop: where to stop, exclusive: `latest`, `earliest`, or a position per topic. Default: `latest`.
            `DataLossError` if entries before it are not there.
        start_time: read only messages published from then on: milliseconds since the epoch, or a time with a zone,
            also as ISO 8601 text. Blocks that cannot hold any are found by binary search, and not read. Default: None.
        stop_time: read only messages published before then, as `start_time`. Default: None.
        time_slack_ms: how many milliseconds older than a message before it a message may be to be found by a range of
            times. Default: 60,000.
        isolation: `committed` for what a consumer sees of transactions, `uncommitted` for all. Default: `committed`.
        transaction_timeout_ms: how many milliseconds a transaction may be open at most: a longer one is not searched
            for at the end of a topic. Default: 600,000.
        transaction_search_bytes: the most stored bytes in which transactions are searched for: at the end of a topic,
            and their ends before and after a task. Default: 64 MiB. `UnresolvedTransactionError`.
        schemas: who knows the topics' schemas (docs/schemas.md): a path or URL of saved ones, a literal one, a
            provider's name. The columns are then those of the payload in place of `value`. Default: None.
            `SchemaError`, `PluginError`.
        reader_schema: the version of the schema, or a definition, that all messages are resolved to. Default: None,
            each topic's newest. `SchemaError`.
        mode: what happens to messages that cannot be decoded, do not decrypt, or lack chunks. `FAILFAST` raises;
            `PERMISSIVE` gives null columns and the payload in `corrupt_column`, or passes on ciphertext, and warns;
            `DROPMALFORMED` leaves them out. Default: `FAILFAST`.
        corrupt_column: the name of that column. Default: `_corrupt_record`.
        key_provider: who has the keys of encrypted messages (docs/encryption.md): a pair of name and options, or a
            text, `pem:directory=/keys`. Default: None. `PluginError`.
        crypto_failure_action: what happens to messages for which there is no key, in Pulsar's words: `FAIL`, `DISCARD`,
            or `CONSUME`, which passes on ciphertext. Default: None, FAIL with a key provider, CONSUME without.
        chunks: `joined` to messages, or `raw`, one by one as they are stored. Default: `joined`.
        chunk_look_back_bytes: how many stored bytes before a task the beginnings of its messages are looked for.
            Default: 128 MiB.
        max_pending_chunk_bytes: the most bytes that a task holds of incomplete messages. Default: 256 MiB.
        max_message_bytes: the most bytes that one payload may decompress to, or the chunks of a message have together.
            Default: 128 MiB. `FormatError`.
        verify_checksums: verify the CRC-32C of every entry that has one, and a MapFile by its `.crc` file.
            Default: True. `ChecksumError`.
        fail_on_data_loss: entries that are missing in the middle are a `DataLossError`, else a warning. Default: True.
    """

    topics_pattern: str | None = None
    ledger: int | None = None
    cluster: str | None = None
    prefix: str = ""
    records: RecordSource | None = field(default=None, repr=False)
    records_options: Mapping[str, object] | None = field(default=None, repr=False)
    tiered_read_priority: ReadPriority | str | None = None
    level: Level = "messages"
    columns: Sequence[str] | None = None
    start: Offsets = "earliest"
    stop: Offsets = "latest"
    start_time: Time | None = None
    stop_time: Time | None = None
    time_slack_ms: int = DEFAULT_TIME_SLACK_MS
    isolation: Isolation = "committed"
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    transaction_search_bytes: int = DEFAULT_TRANSACTION_SEARCH_BYTES
    schemas: SchemaSource | Payloads | None = field(default=None, repr=False)
    reader_schema: int | str | None = None
    mode: Mode = "FAILFAST"
    corrupt_column: str = CORRUPT_RECORD
    key_provider: PluginGiven | None = field(default=None, repr=False)
    crypto_failure_action: CryptoFailureAction | None = None
    chunks: Chunks = "joined"
    chunk_look_back_bytes: int = DEFAULT_CHUNK_LOOK_BACK_BYTES
    max_pending_chunk_bytes: int = DEFAULT_MAX_PENDING_CHUNK_BYTES
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    verify_checksums: bool = True
    fail_on_data_loss: bool = True

    def having(self, **keywords: Any) -> ScanOptions:
        """These options, some of them replaced by keywords.

        Raises:
            OptionError: a keyword that is no option.
        """
        names = [each.name for each in dataclasses.fields(self)]
        for name in keywords.keys() - set(names):
            close = difflib.get_close_matches(name, names, n=1)
            raise OptionError(
                f"a scan has no option {name!r}",
                expected=", ".join(names),
                hint=f"Did you mean {close[0]!r}?" if close else None,
            )
        return replace(self, **keywords)

    @property
    def read_priority(self) -> ReadPriority | None:
        """The copies that are read, if policies do not say it; `OptionError` for a text that names no priority."""
        given = self.tiered_read_priority
        return parse_read_priority(given) if isinstance(given, str) else given

    def selection(self, topics: Sequence[str], *, may_be_absent: bool = False) -> Selection:
        """The topics and ledgers that are read, of these names if there are any."""
        return Selection(
            topics=tuple(topics),
            topics_pattern=self.topics_pattern,
            ledger_id=self.ledger,
            cluster=self.cluster,
            may_be_absent=may_be_absent,
        )


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Names with commas between them; `OptionError`, which names the option, if there is none."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise OptionError(f"option {option} is empty", expected="names, with commas between them")
    return names


def parse_number(text: str, option: str) -> int:
    """A number from 1 on; else `OptionError`, which names the option."""
    number = whole_number(text)
    if not number:
        raise OptionError(f"option {option} is not a number", expected="1 or more", found=text)
    return number


def _text(text: str, _: str) -> str:
    return text


def _priority(text: str, _: str) -> str:
    return parse_read_priority(text).word


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


def parse_truth(text: str, option: str) -> bool:
    """`true` or `false`, in any case of letters; else `OptionError`, which names the option."""
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {option} is neither true nor false", expected="true or false", found=text)
    return text.lower() == "true"


def _key_provider(text: str, _: str) -> PluginSpec:
    return plugin_spec(text, "key provider")


@dataclass(frozen=True, slots=True)
class OneOf:
    """Reads one of some words, in any case."""

    words: tuple[str, ...]

    def __call__(self, text: str, option: str) -> str:
        """The word; `OptionError`, which names the option, if it is none of them."""
        for word in self.words:
            if text.lower() == word.lower():
                return word
        raise OptionError(f"option {option} has no such word", expected=", ".join(self.words), found=text)


Parser = Callable[[str, str], object]
"""Makes a value of a text; the second argument is the option, as errors name it."""

WORDS: dict[str, tuple[str, Parser]] = {
    "topics_pattern": ("topicsPattern", _text),
    "ledger": ("ledger", _ledger),
    "cluster": ("cluster", _text),
    "prefix": ("prefix", _text),
    "records": ("records", _text),
    "tiered_read_priority": ("tieredReadPriority", _priority),
    "level": ("level", OneOf(get_args(Level))),
    "columns": ("columns", parse_names),
    "start": ("startingOffsets", parse_offsets),
    "stop": ("endingOffsets", parse_offsets),
    "start_time": ("startingTime", parse_time),
    "stop_time": ("endingTime", parse_time),
    "time_slack_ms": ("timeSlack", _milliseconds),
    "isolation": ("isolation", OneOf(get_args(Isolation))),
    "transaction_timeout_ms": ("transactionTimeout", _milliseconds),
    "transaction_search_bytes": ("transactionSearchBytes", parse_number),
    "schemas": ("schemas", _text),
    "reader_schema": ("readerSchema", _text),
    "mode": ("mode", OneOf(MODES)),
    "corrupt_column": ("columnNameOfCorruptRecord", _text),
    "key_provider": ("keyProvider", _key_provider),
    "crypto_failure_action": ("cryptoFailureAction", OneOf(CRYPTO_FAILURE_ACTIONS)),
    "chunks": ("chunks", OneOf(get_args(Chunks))),
    "chunk_look_back_bytes": ("chunkLookBackBytes", parse_number),
    "max_pending_chunk_bytes": ("maxPendingChunkBytes", parse_number),
    "max_message_bytes": ("maxMessageBytes", parse_number),
    "verify_checksums": ("verifyChecksums", parse_truth),
    "fail_on_data_loss": ("failOnDataLoss", parse_truth),
}
"""Each field of `ScanOptions` but `records_options`, whose names are its own: Spark's word, and how text is read."""


def parse_scan_options(texts: Mapping[str, str], spelled: Callable[[str], str]) -> dict[str, Any]:
    """The fields of `ScanOptions` that are given as text; `spelled` makes of Spark's word what errors name.

    Raises:
        OptionError: a text that is no value of its option.
    """
    found = {}
    for name, text in texts.items():
        word, parse = WORDS[name]
        found[name] = parse(text, spelled(word))
    return found
