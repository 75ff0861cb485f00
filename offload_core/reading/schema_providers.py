"""Schemas of topics, from where they are kept: saved beside a tier, given literally, or asked of a broker.

What a user gives as `schemas` is one of
saved schemas           a path or URL of a directory or file: ./schemas, s3://bucket/prefix/schemas, orders.json
a definition in a file  a path or URL: orders.avsc, orders.json
a literal schema        JSON: {"type": "record", …}
a broker                the URL of its admin REST: http://broker:8080
messages                infer, or infer:messages=5000: JSON, from a topic's first ones
a provider              its name, with options: literal:type=STRING, or an object that has `history`

In a directory the file of a topic is `<tenant>/<namespace>/<topic>.schemas.json`, the topic's name URL-encoded, and its
end a digest if it is too long for a file system (`catalogue.topics`). Source: docs/schemas.md, docs/formats/schemas.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from offload_core.format.messages.message_columns import MODES, Mode
from offload_core.format.schemas.inferred import infer_definition
from offload_core.format.schemas.payloads import CORRUPT_RECORD, Payloads
from offload_core.format.schemas.primitives import PRIMITIVE_TYPES
from offload_core.format.schemas.schema_history import (
    MOST_BYTES,
    history_from_rest,
    history_from_saved,
    history_of_definition,
    is_definition,
    parse_saved,
    saved_bytes,
    type_of_definition,
)
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.catalogue.topics import name_of
from offload_core.storage.tier import (
    Tier,
    is_schema_provider,
    make_schema_provider,
    open_like,
    open_store,
    parse_plugin,
)
from offload_hooks.errors import (
    BadLengthError,
    InvalidKeyError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    placed,
)
from offload_hooks.json_text import read_json, whole_number
from offload_hooks.schemas import SchemaHistory, SchemaProvider, SchemaVersion

SUFFIX = ".schemas.json"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
_FILES = (".json", ".avsc")
FOLDER = "schemas"
"""Folder of a tier's own schema files, below its root."""


class SchemaFiles:
    """Files of schemas in a store: below `folder`, a file per topic, or the one `file`, whatever topic is asked for."""

    def __init__(self, store: Tier, *, folder: str = "", file: str = "", kind: str = "") -> None:
        self._store, self._folder, self._file, self._kind = store, folder, file, kind

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    def history(self, topic: str) -> SchemaHistory | None:
        """See `SchemaProvider`."""
        found = self._find(topic)
        if found is None:
            return None
        key, size = found
        with placed(key=key):
            if size > MOST_BYTES:
                raise BadLengthError(
                    "a file of schemas is too large", expected=f"at most {MOST_BYTES} bytes", found=size
                )
            data = bytes(self._store.read_range(key, 0, size)) if size else b""
            return self._parse(data) if self._file else parse_saved(data)[1]

    def _parse(self, data: bytes) -> SchemaHistory:
        """What the one file has: saved schemas, or a definition."""
        declared = read_json(data, "a file of schemas", error=SchemaError)
        if is_definition(declared):
            return history_of_definition(data.decode(), self._kind or type_of_definition(declared))
        if self._kind:
            raise SchemaError("a file of saved schemas has types of its own", found=f"type={self._kind}")
        return history_from_saved(declared)[1]

    def save(self, topic: str, history: SchemaHistory) -> str:
        """Save the whole history of a topic; answers the key of its file. An older one is replaced."""
        key = self._key(topic)
        self._store.write_index(key, saved_bytes(topic, history), content_type="application/json")
        return key

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _key(self, topic: str) -> str:
        return self._file or f"{self._folder}{saved_key(parse_topic(topic))}"

    def _find(self, topic: str) -> tuple[str, int] | None:
        """A topic's file and its size; None if there is none."""
        key = self._key(topic)
        try:
            return key, self._store.stat(key).size_bytes
        except ObjectNotFoundError:
            if self._file:
                raise
        whole = f"{self._folder}{_whole_key(parse_topic(topic))}"
        if whole != key:  # saved by a version that did not shorten names, in a store that takes long ones
            with suppress(ObjectNotFoundError, InvalidKeyError):
                return whole, self._store.stat(whole).size_bytes
        return None


class SavedSchemas(SchemaFiles):
    """The schema provider `saved`.

    Args:
        path: path or URL of a directory, or of one file (`.json` or `.avsc`), whatever topic is asked for: saved
            schemas, or a definition.
        type: Pulsar's name of the type of a definition. Default: AVRO or PROTOBUF_NATIVE, by its form.
        tier: a tier that is open: a URL of its driver is opened with `options`, another with none.
        options: of the driver of the URL.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        type: object = "",  # noqa: A002 - the option's name
        tier: Tier | None = None,
        **options: Any,
    ) -> None:
        text = os.fspath(path)
        if text.endswith(_FILES) and not _URL.match(text):
            text = str(Path(text).expanduser().resolve())  # the file itself, where a link leads to it
        folder, file = text, ""
        if text.endswith(_FILES):
            before, slash, file = text.rpartition("/")
            folder = before or ("/" if slash else ".")
        if not folder:
            raise OptionError("where are the schemas?", expected="a directory or a file of schemas")
        if "/" not in folder:
            folder = os.path.abspath(folder)  # noqa: PTH100 - of a path, never a driver's name
        store = open_store(folder, **options) if tier is None else open_like(tier, folder, **options)
        super().__init__(store, file=file, kind=str(type).upper())


def saved_in(tier: Tier) -> SchemaFiles:
    """The schemas beside a tier, in its folder `schemas`."""
    return SchemaFiles(tier, folder=f"{FOLDER}/")


def saved_key(topic: TopicName) -> str:
    """The name of a topic's file, below the directory of schemas."""
    tenant, namespace, local = _parts(topic)
    return f"{tenant}/{namespace}/{name_of(local, after=SUFFIX)}"


def _whole_key(topic: TopicName) -> str:
    tenant, namespace, local = _parts(topic)
    return f"{tenant}/{namespace}/{quote(local, safe='')}{SUFFIX}"


def _parts(topic: TopicName) -> list[str]:
    return topic.base.removeprefix("persistent://").split("/", 2)


class LiteralSchema:
    """The schema provider `literal`.

    Args:
        definition: a schema as JSON, or what the broker's admin REST answers of a topic's schemas.
        type: Pulsar's name of the schema's type; a primitive type has no definition. Without `type`, AVRO
            or PROTOBUF_NATIVE, by the definition's form.
    """

    def __init__(self, definition: str = "", type: str = "") -> None:  # noqa: A002 - the option's name
        kind = type.upper()
        if kind in PRIMITIVE_TYPES:
            self._history = history_of_definition("", kind)
            return
        declared = read_json(definition, "a literal schema", error=OptionError)
        try:
            if isinstance(declared, dict) and (
                "getSchemaResponses" in declared or {"version", "type", "data"} <= declared.keys()
            ):
                self._history = history_from_rest(declared)
                return
        except SchemaError as error:
            raise OptionError(f"a literal schema has another form: {error}") from error
        self._history = history_of_definition(definition, kind or type_of_definition(declared))

    def history(self, topic: str) -> SchemaHistory:
        """See `SchemaProvider`: the same for every topic."""
        del topic
        return self._history

    def close(self) -> None:
        """Do nothing: no resource is open."""


Sample = Callable[[str, int], pa.Array]
"""The payloads of a topic's first messages, given its name and their number."""


class InferredSchemas:
    """The schema provider `infer`: JSON, inferred from a topic's first messages.

    Args:
        sample: what reads them.
        messages: how many are looked at. Default: 1,000.
    """

    def __init__(self, sample: Sample, messages: int | str = 1000) -> None:
        count = whole_number(str(messages))
        if not count:
            raise OptionError("infer:messages is not a number", expected="1 or more", found=messages)
        self._sample, self._count = sample, count

    def history(self, topic: str) -> SchemaHistory:
        """See `SchemaProvider`.

        Raises:
            SchemaError: no schema can be inferred.
        """
        try:
            return history_of_definition(infer_definition(self._sample(topic, self._count)), "JSON")
        except SchemaError as error:
            raise SchemaError(f"{topic}: {error.what}", found=error.found, hint=error.hint) from error

    def close(self) -> None:
        """Do nothing: no resource is open."""


SchemaSource = str | os.PathLike[str] | tuple[str, Mapping[str, object]] | SchemaProvider
"""A path, URL or literal schema; a provider's name, alone, as text with options, or as a pair; or a provider."""

_INFER = "infer"
_NAME = re.compile(r"\s*([A-Za-z0-9_-]+)\s*(?:$|:\s*(\w+\s*=)?)")
"""A provider's name, and how its options begin: a path or URL has none."""


def open_provider(
    source: SchemaSource, tier: Tier, options: Mapping[str, object], sample: Sample
) -> SchemaProvider:
    """The provider that is meant; `options` are those that `tier` was opened with, for files beside it.

    `sample` reads messages for the provider `infer`.

    Raises:
        OptionError, UnknownPluginError, MissingExtraError, BrokenPluginError.
    """
    if isinstance(source, tuple):
        return _named_provider(*source, sample)
    if not isinstance(source, str | os.PathLike):
        return source
    text = os.fspath(source)
    if text.lstrip().startswith(("{", "[", '"')):
        return LiteralSchema(text)
    if text.lower().startswith(("http://", "https://")):
        return make_schema_provider("admin", {"url": text})
    named = _NAME.match(text)
    if (
        isinstance(source, str)
        and named is not None
        and (named[2] or named[1] == _INFER or is_schema_provider(named[1]))
    ):
        return _named_provider(*parse_plugin(text, "schema provider"), sample)
    return SavedSchemas(text, tier=tier, **options)


def _named_provider(name: str, options: Mapping[str, object], sample: Sample) -> SchemaProvider:
    if name != _INFER:
        return make_schema_provider(name, options)
    others = options.keys() - {"messages"}
    if others:
        raise OptionError("infer has no such option", expected="messages", found=", ".join(sorted(others)))
    return InferredSchemas(sample, **options)  # type: ignore[arg-type]


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
