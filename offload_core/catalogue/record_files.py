"""Managed ledgers' records in a file or a folder tree, on this machine or in a store.

A tree has a record at `<tenant>/<namespace>/persistent/<topic>`, as Pulsar's metadata store has under
`/managed-ledgers`; a name may end with `.val`. Files elsewhere are passed over, cursors' records among them. Source:
docs/formats/metadata.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from offload_core.catalogue.concurrency import concurrently
from offload_core.catalogue.topics import TopicName, parse_topic, topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, parse_stored_record
from offload_core.metadata.stored_record import MAX_RECORD_BYTES
from offload_core.tier import Tier, open_like, open_store
from offload_hooks.errors import BadLengthError, OptionError, placed
from offload_hooks.values import ListedObject

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
_TOPIC = "persistent://"
_ROOT = "managed-ledgers"
_SUFFIX = ".val"
_FORMS = "a file or tree <tenant>/<namespace>/persistent/<topic>[.val], or persistent://TENANT/NAMESPACE/TOPIC=FILE"


class FileRecords:
    """The records in these files of a store; see `record_source.Records`."""

    why_incomplete = "files are a copy, perhaps of some topics, and of another day"

    def __init__(self, store: Tier, files: Mapping[TopicName, ListedObject]) -> None:
        self._store = store
        self._files = files

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """All topics: to list fewer would cost the same."""
        del namespaces
        return list(self._files)

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """Read the files of these topics, several at once."""
        wanted = list(topics)
        infos = concurrently(lambda topic: _read_file(self._store, self._files[topic]), wanted)
        return dict(zip(wanted, infos, strict=True))


@contextmanager
def open_files(
    source: str | os.PathLike[str], tier: Tier, options: Mapping[str, object], own: Mapping[str, Any]
) -> Iterator[FileRecords]:
    """The records at a path or URL, which is opened with `own` options.

    Without any, a URL of the tier's driver is opened with `options`, those that the tier was opened with.

    Raises:
        OptionError: no record is there, two are of one topic, or a file's path does not name its topic.
        StoreError: the place cannot be listed.
    """
    text = os.fspath(source)
    topic = None
    if text.startswith(_TOPIC):
        name, _, text = text.partition("=")
        topic = parse_topic(name)
    folder, name = _folder_and_name(text, is_path=not isinstance(source, str))
    with open_store(folder, **own) if own else open_like(tier, folder, **options) as store:
        files: dict[TopicName, ListedObject] = {}
        for file in store.list_objects(name):
            if file.key == name or (topic is None and file.key.startswith(f"{name}/" if name else "")):
                named = _topic_of_path(f"{folder}/{file.key}") if topic is None else topic
                if named in files:
                    raise OptionError(f"two records are of the topic {named}", expected="one")
                if named is not None:
                    files[named] = file
        if not files:
            raise OptionError("no record of a managed ledger is there", expected=_FORMS, found=str(source))
        yield FileRecords(store, files)


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
