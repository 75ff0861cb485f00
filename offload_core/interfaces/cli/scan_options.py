"""The options that state which messages of which topics are read, and how: `ScanOptions` for every command that reads.

Spark's words in kebab case, read as the Spark source reads them.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any, ClassVar

import typer

from offload_core.interfaces.cli.command_options import (
    Hot,
    KeyProvider,
    OptionGroup,
    Prefix,
    RecordOptions,
    Schemas,
    TierOptions,
    Topics,
    flag,
    group_parameters,
    named,
    titled,
)
from offload_core.interfaces.cli.nothing_found import chosen_topics
from offload_core.metadata.catalogue import TierReader
from offload_core.reading.scan import ScanOptions
from offload_core.reading.scan.options import WORDS, OneOf, parse_scan_options

_TITLES = {
    "Which messages": "topic topics_pattern ledger cluster prefix start stop start_time stop_time time_slack_ms",
    "Columns and schemas": "level columns schemas reader_schema mode corrupt_column",
    "Other places": "records records_options also_tier hot tiered_read_priority",
    "Transactions": "isolation transaction_timeout_ms transaction_search_bytes",
    "Encrypted, chunked and damaged messages": """
        key_provider crypto_failure_action chunks chunk_look_back_bytes max_pending_chunk_bytes max_message_bytes
        verify_checksums fail_on_data_loss
    """,
}
"""The options by the titles under which help shows them."""
_TITLE_OF = {name: title for title, names in _TITLES.items() for name in names.split()}

_HELP: dict[str, str | tuple[str, str]] = {
    "topics_pattern": "Instead of names: a regular expression of whole names.",
    "ledger": "Only this ledger; a topic is not needed then.",
    "tiered_read_priority": "With --hot, which copies are read: tiered-storage-first, bookkeeper-first, offloaded-only "
    "or bookkeeper-only.",
    "cluster": "Only what this Pulsar cluster offloaded.",
    "level": "What a row is.",
    "columns": "Columns, with commas between; as in Spark.",
    "start": ("--start", "Where to start: earliest, or positions or message ids as JSON."),
    "stop": ("--stop", "Where to stop: latest, or positions or message ids as JSON."),
    "start_time": ("--start-time", "Only messages published from then on: ISO 8601 with a zone, or ms."),
    "stop_time": ("--stop-time", "Only messages published before then: ISO 8601 with a zone, or ms."),
    "time_slack_ms": "How much older than one before it a message may be, in ms.",
    "isolation": "Of transactions: what a consumer sees, or all messages.",
    "transaction_timeout_ms": "How long a transaction may be open at most, in ms.",
    "transaction_search_bytes": "How far the ends of transactions are searched for, in bytes.",
    "reader_schema": "Resolve to this version of the schema, or to this definition.",
    "mode": "What becomes of messages that cannot be read.",
    "corrupt_column": "The column of payloads that are not decoded.",
    "crypto_failure_action": "What becomes of messages without a key; with a key provider FAIL, else CONSUME.",
    "chunks": "Chunks as messages, or as they are stored.",
    "chunk_look_back_bytes": "How far the chunks of a message may be apart.",
    "max_pending_chunk_bytes": "The most that is held of messages that are not complete.",
    "max_message_bytes": "The most that a message may be long.",
    "verify_checksums": "Verify what has a checksum.",
    "fail_on_data_loss": "Stop where messages are missing; else warn and go on.",
}
"""The help of each option that only scans have; with a second name, where there is one."""

_AlsoTier = Annotated[
    list[str] | None,
    typer.Option(metavar="URL", help="With --records: read what is not here from there; may be given again."),
]


class MessagesRead(OptionGroup):
    """Topics, further tiers, and the options of their scan, as text."""

    title = "Which messages"

    __slots__ = ("_hot", "_texts", "_tiers", "topics")
    __signature__: ClassVar[inspect.Signature]

    def __init__(
        self, *, topic: list[str] | None, also_tier: list[str] | None, hot: str | None, **texts: Any
    ) -> None:
        self.topics = tuple(topic or ())
        self._hot = hot
        self._tiers = tuple(also_tier or ())
        self._texts = texts

    def options(self) -> ScanOptions:
        """Return the options of the scan.

        Raises:
            OptionError: a text that is no value of its option, which is named.
        """
        texts = {name: each for name, each in self._texts.items() if isinstance(each, str)}
        rest: dict[str, Any] = {name: each for name, each in self._texts.items() if isinstance(each, bool)}
        own = named(self._texts["records_options"], "the records")
        return ScanOptions(**parse_scan_options(texts, flag), **rest, records_options=own or None)

    def open(self, tier: TierOptions) -> TierReader:
        """Open the tiers that are read."""
        return tier.open(self._hot).also(*self._tiers)

    def chosen(self, tier: TierReader) -> tuple[str, ...]:
        """Return the names of the topics; of patterns, those that match. `UnknownTopicError`: none does."""
        records = RecordOptions(records=self._texts["records"], records_option=self._texts["records_options"])
        return tuple(each.full for each in chosen_topics(tier, self.topics, records.opener(tier)))


class ExportedMessages(MessagesRead):
    """The same of an export, which is of whole topics and of messages."""

    __slots__ = ()


def _signature(*without: str) -> inspect.Signature:
    records, records_option = (each.annotation for each in group_parameters(RecordOptions))
    shared = {
        "prefix": Prefix,
        "records": records,
        "records_options": records_option,
        "schemas": Schemas,
        "key_provider": KeyProvider,
    }
    return inspect.Signature(
        [
            _parameter("topic", None, Topics),
            _parameter("also_tier", None, _AlsoTier),
            _parameter("hot", None, Hot),
            *(
                _parameter(each.name, _default(each.default), shared.get(each.name) or _annotation(each.name))
                for each in dataclasses.fields(ScanOptions)
                if each.name not in without
            ),
        ]
    )


def _default(value: object) -> object:
    return value if value is None or isinstance(value, bool) else str(value)


def _parameter(name: str, default: object, annotation: object) -> inspect.Parameter:
    shown = titled(annotation, _TITLE_OF[name])
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=shown)


def _annotation(name: str) -> object:
    word, parse = WORDS[name]
    texts = _HELP[name]
    *more, help_ = (texts,) if isinstance(texts, str) else texts
    if name in ("verify_checksums", "fail_on_data_loss"):
        return Annotated[bool, typer.Option(help=help_)]
    metavar = f"[{'|'.join(parse.words)}]" if isinstance(parse, OneOf) else None
    return Annotated[str | None, typer.Option(flag(word), *more, metavar=metavar, help=help_)]


MessagesRead.__signature__ = _signature()
ExportedMessages.__signature__ = _signature("ledger", "level")
