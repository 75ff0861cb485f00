"""The options that state which messages of which topics are read, and how: `ScanOptions` for every command that reads.

Spark's words in kebab case, read as the Spark source reads them. A command that `reads_messages` takes them together as
one value.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.shared import (
    KeyProvider,
    Prefix,
    Records,
    RecordsOptions,
    Schemas,
    TopicNames,
    named,
    opened,
)
from offload_core.metadata.catalogue import TierReader
from offload_core.reading.scan import ScanOptions
from offload_core.reading.scan.options import WORDS, OneOf, parse_scan_options

_HELP: dict[str, str | tuple[str, str]] = {
    "topics_pattern": "Instead of names: a regular expression of whole names.",
    "ledger": "Only this ledger; a topic is not needed then.",
    "cluster": "Only what this Pulsar cluster offloaded.",
    "level": "What a row is.",
    "columns": "Columns, with commas between; as in Spark.",
    "start": ("--start", "Where to start: earliest, or positions or message ids as JSON."),
    "stop": ("--stop", "Where to stop: latest, or positions or message ids as JSON."),
    "start_time": ("--start-time", "Only messages published from then on: ISO 8601 with a zone, or ms."),
    "stop_time": ("--stop-time", "Only messages published before then: ISO 8601 with a zone, or ms."),
    "time_slack_ms": "How much older than one before it a message may be, in ms.",
    "isolation": "Of transactions: what a consumer sees, or all messages.",
    "summaries": "A path or URL: keep ledgers' summaries there, to look up transactions only once.",
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
"""What help says of each option that other commands do not have as well; with a second name, where there is one."""

_SHARED = {
    "prefix": Prefix,
    "records": Records,
    "records_options": RecordsOptions,
    "schemas": Schemas,
    "key_provider": KeyProvider,
}
_TOPIC = {"topic": TopicNames}
_ALSO_TIER = {
    "also_tier": Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="With --records: read what is not here from there; may be given again."
        ),
    ]
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRead:
    """What was typed: topics, further tiers, and the options of their scan, as text."""

    topics: tuple[str, ...]
    tiers: tuple[str, ...]
    texts: dict[str, Any]

    def options(self) -> ScanOptions:
        """The options of the scan.

        Raises:
            OptionError: a text that is no value of its option, which is named.
        """
        texts = {name: each for name, each in self.texts.items() if isinstance(each, str)}
        rest: dict[str, Any] = {name: each for name, each in self.texts.items() if isinstance(each, bool)}
        own = named(self.texts["records_options"], "the records")
        return ScanOptions(**parse_scan_options(texts, _flag), **rest, records_options=own or None)

    def opened(
        self, url: str, driver: str | None, option: list[str] | None, layer: list[str] | None
    ) -> TierReader:
        """The tiers that are read."""
        return opened(url, driver, option, layer).also(*self.tiers)


def reads_messages(*, leaves_out: tuple[str, ...] = ()) -> Callable[..., Callable[..., None]]:
    """For a command with a parameter `scan: MessagesRead`, in whose place its command line has each of the options.

    Args:
        leaves_out: options of a scan that the command has not.
    """
    options = [_parameter(name, None, annotation) for name, annotation in (_TOPIC | _ALSO_TIER).items()] + [
        _parameter(each.name, _default(each.default), _SHARED.get(each.name) or _annotation(each.name))
        for each in dataclasses.fields(ScanOptions)
        if each.name not in leaves_out
    ]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command, eval_str=True).parameters.values():
            parameters += (
                options if own.name == "scan" else [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            )

        @functools.wraps(command)
        def run(**given: Any) -> None:
            topics, tiers = (tuple(given.pop(name) or ()) for name in ("topic", "also_tier"))
            texts = {each.name: given.pop(each.name) for each in options[2:]}
            command(scan=MessagesRead(topics=topics, tiers=tiers, texts=texts), **given)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorated


def _flag(word: str) -> str:
    """An option of the Spark source as one of the command line."""
    return "--" + re.sub("([A-Z])", r"-\1", word).lower()


def _default(value: object) -> object:
    return value if value is None or isinstance(value, bool) else str(value)


def _parameter(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(name: str) -> object:
    word, parse = WORDS[name]
    said = _HELP[name]
    *more, help_ = (said,) if isinstance(said, str) else said
    if name in ("verify_checksums", "fail_on_data_loss"):
        return Annotated[bool, typer.Option(help=help_)]
    metavar = f"[{'|'.join(parse.words)}]" if isinstance(parse, OneOf) else None
    return Annotated[str | None, typer.Option(_flag(word), *more, metavar=metavar, help=help_)]
