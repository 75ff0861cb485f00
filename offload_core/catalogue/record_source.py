"""Where managed ledgers' records are read from: a file, a folder tree, or bytes by topic.

A tree has a record at `<tenant>/<namespace>/persistent/<topic>`, as Pulsar's metadata store has under
`/managed-ledgers`; a name may end with `.val`. Files elsewhere are passed over, cursors' records among them. Source:
docs/formats/metadata.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from offload_core.catalogue.concurrency import concurrently
from offload_core.catalogue.topics import TopicName, parse_topic, topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, parse_stored_record
from offload_core.metadata.stored_record import MAX_RECORD_BYTES
from offload_core.tier import Tier, open_like
from offload_hooks.errors import BadLengthError, OptionError, placed
from offload_hooks.values import ListedObject

RecordSource = str | os.PathLike[str] | Mapping[str, bytes | ManagedLedgerInfo]
"""A path or URL of a file or tree; `TOPIC=` before it, with `persistent://`, for a file whose path names no topic; or
records by topic."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
_TOPIC = "persistent://"
_ROOT = "managed-ledgers"
_SUFFIX = ".val"
_FORMS = "a file or tree <tenant>/<namespace>/persistent/<topic>[.val], or persistent://TENANT/NAMESPACE/TOPIC=FILE"


def load_records(
    source: RecordSource, tier: Tier, options: Mapping[str, object]
) -> dict[TopicName, ManagedLedgerInfo]:
    """The records of a source, by topic.

    `options` are those that `tier` was opened with: a URL of the same driver is opened with them, another with none.

    Raises:
        OptionError: no record is there, two are of one topic, or a file's path does not name its topic.
        FormatError: a record that is none, with its path.
        StoreError: the source cannot be read.
    """
    if isinstance(source, Mapping):
        named = [(parse_topic(topic), _parsed(topic, record)) for topic, record in source.items()]
    else:
        named = _read(source, tier, options)
    records: dict[TopicName, ManagedLedgerInfo] = {}
    for name, info in named:
        if name in records:
            raise OptionError(f"two records are of the topic {name}", expected="one")
        records[name] = info
    return records


def _parsed(topic: str, record: bytes | ManagedLedgerInfo) -> ManagedLedgerInfo:
    if isinstance(record, ManagedLedgerInfo):
        return record
    with placed(key=topic):
        return parse_stored_record(record).info


def _read(
    source: str | os.PathLike[str], tier: Tier, options: Mapping[str, object]
) -> list[tuple[TopicName, ManagedLedgerInfo]]:
    text = os.fspath(source)
    topic = None
    if text.startswith(_TOPIC):
        name, _, text = text.partition("=")
        topic = parse_topic(name)
    folder, name = _folder_and_name(text, is_path=not isinstance(source, str))
    with open_like(tier, folder, **options) as store:
        files = [
            (_topic_of_path(f"{folder}/{file.key}") if topic is None else topic, file)
            for file in store.list_objects(name)
            if file.key == name or (topic is None and file.key.startswith(f"{name}/" if name else ""))
        ]
        found = [(named, file) for named, file in files if named is not None]
        if not found:
            raise OptionError("no record of a managed ledger is there", expected=_FORMS, found=str(source))
        infos = concurrently(lambda each: _read_file(store, each[1]), found)
    return [(named, info) for (named, _), info in zip(found, infos, strict=True)]


def _folder_and_name(text: str, *, is_path: bool) -> tuple[str | Path, str]:
    """The folder that a file or tree lies in, and its name in it; empty for the root of a bucket."""
    url = None if is_path else _URL.match(text)
    if url is None:
        if not text:
            raise OptionError("where are the records?", expected=_FORMS)
        path = Path(text).expanduser().resolve()
        return path.parent, path.name
    stripped = text.rstrip("/")
    before, slash, name = stripped[url.end() :].rpartition("/")
    if not slash or not before.strip("/"):
        return stripped, ""
    return url[0] + before, name


def _topic_of_path(path: str) -> TopicName | None:
    """The topic whose record lies at a path; None if the path is not one of a record."""
    _, root, name = f"/{path}".rpartition(f"/{_ROOT}/")
    parts = name.split("/") if root else name.split("/")[-4:]
    if len(parts) < 4 or parts[-2] != "persistent" or not all(parts):
        return None
    return topic_of_managed_ledger("/".join(parts).removesuffix(_SUFFIX))


def _read_file(store: Tier, file: ListedObject) -> ManagedLedgerInfo:
    with placed(key=file.key):
        if file.size_bytes > MAX_RECORD_BYTES:
            raise BadLengthError(
                "a managed ledger's record is too large",
                expected=f"at most {MAX_RECORD_BYTES} bytes",
                found=file.size_bytes,
            )
        data = store.read_range(file.key, 0, file.size_bytes) if file.size_bytes else b""
        return parse_stored_record(data).info
