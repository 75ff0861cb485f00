"""From what a user gives as `schemas` and `readerSchema` to the payloads of a scan.

saved schemas           a path or URL of a directory or file: ./schemas, s3://bucket/prefix/schemas, orders.json
a literal schema        JSON: {"type": "record", …}
a broker                the URL of its admin REST: http://broker:8080
a provider              its name, with options: literal:type=STRING, or an object that has `history`
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from offload_core.format.messages.schema import MODES, Mode
from offload_core.format.schemas.payloads import CORRUPT_RECORD, Payloads
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.schema_providers.literal import LiteralSchema, type_of_definition
from offload_core.reading.schema_providers.saved import SavedSchemas
from offload_core.storage.tier import Tier, is_schema_provider, make_schema_provider, parse_plugin
from offload_hooks.errors import OptionError, SchemaError
from offload_hooks.json_text import read_json
from offload_hooks.schemas import SchemaHistory, SchemaProvider, SchemaVersion

SchemaSource = str | os.PathLike[str] | tuple[str, Mapping[str, object]] | SchemaProvider
"""A path, URL or literal schema; a provider's name, alone, as text with options, or as a pair; or a provider."""

_NAME = re.compile(r"\s*([A-Za-z0-9_-]+)\s*(:|$)")


def open_provider(source: SchemaSource, tier: Tier, options: Mapping[str, object]) -> SchemaProvider:
    """The provider that is meant; `options` are those that `tier` was opened with, for files beside it.

    Raises:
        OptionError, UnknownPluginError, MissingExtraError, BrokenPluginError.
    """
    if isinstance(source, tuple):
        name, given = source
        return make_schema_provider(name, given)
    if not isinstance(source, str | os.PathLike):
        return source
    text = os.fspath(source)
    if text.lstrip().startswith(("{", "[", '"')):
        return LiteralSchema(text)
    if text.lower().startswith(("http://", "https://")):
        return make_schema_provider("admin", {"url": text})
    named = _NAME.match(text)
    if isinstance(source, str) and named is not None and is_schema_provider(named[1]):
        name, given = parse_plugin(text, "schema provider")
        return make_schema_provider(name, given)
    return SavedSchemas(text, tier=tier, **options)


def choose_payloads(
    provider: SchemaProvider,
    topics: Iterable[TopicName],
    *,
    reader_schema: int | str | None = None,
    mode: Mode = "FAILFAST",
    corrupt_column: str = CORRUPT_RECORD,
) -> Payloads:
    """Ask for the histories of topics, and for the schema that all are resolved to.

    Args:
        reader_schema: a version's number (also as text), or a definition of AVRO or PROTOBUF_NATIVE; None for each
            topic's newest version.

    Raises:
        OptionError: a version that a topic has not, or a word that is none.
        SchemaError: a topic whose schemas are not known; a definition that is not right.
        StoreError: the provider's.
    """
    if mode not in MODES:
        raise OptionError("there is no such mode", expected=", ".join(MODES), found=mode)
    names = sorted({topic.base for topic in topics})
    histories = {}
    for name in names:
        history = provider.history(name)
        if history is None:
            raise SchemaError(
                f"the schemas of {name} are not known",
                hint="offload schemas pull saves them; without schemas `value` is binary.",
            )
        histories[name] = history
    if not histories:
        raise OptionError("no topic is there whose schemas could be asked for")
    reader = None if reader_schema is None else _reader(reader_schema, histories)
    payloads = Payloads(histories=histories, reader=reader, mode=mode, corrupt_column=corrupt_column)
    payloads.value_fields()
    return payloads


def _reader(chosen: int | str, histories: Mapping[str, SchemaHistory]) -> SchemaVersion:
    text = str(chosen).strip()
    if text.isascii() and text.isdigit():
        if len(histories) > 1:
            raise OptionError(
                "a version's number is of one topic", expected="a definition", found=f"version {text}"
            )
        ((topic, history),) = histories.items()
        version = history.find(int(text)) if len(text) < 20 else None
        if version is None:
            raise OptionError(
                f"the schema of {topic} has no version {text[:40]}",
                expected=f"one of {_numbers(history.versions)}",
            )
        return version
    try:
        declared = read_json(text, "a reader's schema", error=OptionError)
    except OptionError as error:
        raise OptionError(
            "a reader's schema is neither a version's number nor JSON", found=error.found
        ) from error
    newest = next(iter(histories.values())).newest
    return SchemaVersion(version=newest.version, type=type_of_definition(declared), definition=text)


def _numbers(versions: Sequence[SchemaVersion]) -> str:
    return ", ".join(str(version.version) for version in versions)
