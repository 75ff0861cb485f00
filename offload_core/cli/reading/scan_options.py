"""The options that say which messages of which topics are read, and how: declared once, for every command that reads.

They are those of the Spark source, its words in kebab case, as the arguments of `TierReader.scan`. A command that
`reads_messages` takes them together as one value.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

from offload_core.cli.shared import KeyProvider, Prefix, Records, RecordsOptions, Schemas, named
from offload_core.scan import parse_offsets, parse_time
from offload_core.scan.tasks import (
    DEFAULT_CHUNK_LOOK_BACK_BYTES,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_MAX_PENDING_CHUNK_BYTES,
    DEFAULT_TIME_SLACK_MS,
)
from offload_core.schemas import CORRUPT_RECORD


class ModeName(enum.StrEnum):
    """What becomes of messages that cannot be read."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class IsolationName(enum.StrEnum):
    """Which messages of transactions are read."""

    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


class CryptoFailureActionName(enum.StrEnum):
    """What becomes of messages for which there is no key."""

    FAIL = "FAIL"
    DISCARD = "DISCARD"
    CONSUME = "CONSUME"


class ChunksName(enum.StrEnum):
    """Whether chunks become messages."""

    JOINED = "joined"
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """What was typed; `arguments` makes values of it."""

    topic: Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic; may be given again.")] = (
        None
    )
    topics_pattern: Annotated[
        str | None, typer.Option(help="Instead of names: a regular expression of whole names.")
    ] = None
    cluster: Annotated[str | None, typer.Option(help="Only what this Pulsar cluster offloaded.")] = None
    columns: Annotated[str | None, typer.Option(help="Columns, with commas between; as in Spark.")] = None
    start: Annotated[
        str,
        typer.Option(
            "--starting-offsets",
            "--start",
            help="Where to start: earliest, or positions or message ids as JSON.",
        ),
    ] = "earliest"
    stop: Annotated[
        str,
        typer.Option(
            "--ending-offsets", "--stop", help="Where to stop: latest, or positions or message ids as JSON."
        ),
    ] = "latest"
    start_time: Annotated[
        str | None,
        typer.Option(
            "--starting-time",
            "--start-time",
            help="Only messages published from then on: ISO 8601 with a zone, or ms.",
        ),
    ] = None
    stop_time: Annotated[
        str | None,
        typer.Option(
            "--ending-time",
            "--stop-time",
            help="Only messages published before then: ISO 8601 with a zone, or ms.",
        ),
    ] = None
    time_slack: Annotated[
        int, typer.Option(min=0, help="How much older than one before it a message may be, in ms.")
    ] = DEFAULT_TIME_SLACK_MS
    isolation: Annotated[
        IsolationName,
        typer.Option(case_sensitive=False, help="Of transactions: what a consumer sees, or all messages."),
    ] = IsolationName.COMMITTED
    summaries: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Keep ledgers' summaries there, to look up transactions only once."
        ),
    ] = None
    also_tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="With --records: read what is not here from there; may be given again.",
        ),
    ] = None
    prefix: Prefix = ""
    records: Records = None
    records_option: RecordsOptions = None
    schemas: Schemas = None
    reader_schema: Annotated[
        str | None, typer.Option(help="Resolve to this version of the schema, or to this definition.")
    ] = None
    mode: Annotated[
        ModeName, typer.Option(case_sensitive=False, help="What becomes of messages that cannot be read.")
    ] = ModeName.FAILFAST
    corrupt_column: Annotated[
        str,
        typer.Option("--column-name-of-corrupt-record", help="The column of payloads that are not decoded."),
    ] = CORRUPT_RECORD
    key_provider: KeyProvider = None
    crypto_failure_action: Annotated[
        CryptoFailureActionName | None,
        typer.Option(
            case_sensitive=False,
            help="What becomes of messages without a key; with a key provider FAIL, else CONSUME.",
        ),
    ] = None
    chunks: Annotated[
        ChunksName, typer.Option(case_sensitive=False, help="Chunks as messages, or as they are stored.")
    ] = ChunksName.JOINED
    chunk_look_back_bytes: Annotated[
        int, typer.Option(min=1, help="How far the chunks of a message may be apart.")
    ] = DEFAULT_CHUNK_LOOK_BACK_BYTES
    max_pending_chunk_bytes: Annotated[
        int, typer.Option(min=1, help="The most that is held of messages that are not complete.")
    ] = DEFAULT_MAX_PENDING_CHUNK_BYTES
    max_message_bytes: Annotated[int, typer.Option(min=1, help="The most that a message may be long.")] = (
        DEFAULT_MAX_MESSAGE_BYTES
    )
    verify_checksums: Annotated[bool, typer.Option(help="Verify what has a checksum.")] = True
    fail_on_data_loss: Annotated[
        bool, typer.Option(help="Stop where messages are missing; else warn and go on.")
    ] = True

    def arguments(self) -> dict[str, Any]:
        """As `TierReader.scan` takes them.

        Raises:
            OptionError: positions, a time or an option that is none.
        """
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        del given["also_tier"]  # says where to read, as the URL does
        time_slack, records_option = given.pop("time_slack"), given.pop("records_option")
        return given | {
            "topic": tuple(self.topic or ()),
            "columns": None if self.columns is None else tuple(n.strip() for n in self.columns.split(",")),
            "start": parse_offsets(self.start, "--starting-offsets"),
            "stop": parse_offsets(self.stop, "--ending-offsets"),
            "start_time": None if self.start_time is None else parse_time(self.start_time, "--starting-time"),
            "stop_time": None if self.stop_time is None else parse_time(self.stop_time, "--ending-time"),
            "time_slack_ms": time_slack,
            "records_options": named(records_option, "the records"),
        }


def reads_messages(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a parameter `scan: ScanOptions`, in whose place its command line has each of those options."""
    hints = get_type_hints(ScanOptions, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(ScanOptions)
    ]
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        parameters += options if own.name == "scan" else [own.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        scan = ScanOptions(**{option.name: given.pop(option.name) for option in options})
        command(scan=scan, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
