"""Sources of managed ledgers' records: files, a metadata store by its URL, or values by topic.

A source lists its topics, and reads the records of chosen ones. A folder tree, local or in a store, has a record at
`<tenant>/<namespace>/persistent/<topic>`, as Pulsar's metadata store has under `/managed-ledgers`; a name may end with
`.val`. Files elsewhere, such as cursors' records, are ignored. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, cast

from offload_core.metadata.catalogue.concurrency import concurrently
from offload_core.metadata.catalogue.policy_places import stored_priority
from offload_core.metadata.catalogue.topics import (
    TopicName,
    managed_ledger_of_topic,
    parse_topic,
    topic_of_managed_ledger,
)
from offload_core.metadata.records import ManagedLedgerInfo, ReadPriority, parse_stored_record
from offload_core.metadata.records.relocations import Mapped, read_mapping, relocated
from offload_core.metadata.records.stored_record import MAX_RECORD_BYTES
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import is_claim
from offload_core.metadata.stores.record_paths import CONCURRENCY, list_names, read_record
from offload_core.storage.tier import Tier, open_like, open_store, registry
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import BadLengthError, FormatError, OptionError, placed
from offload_hooks.metadata_stores import MetadataStore, WritableMetadataStore
from offload_hooks.values import ListedObject


class StoreRecords:
    """The records of a metadata store; see `record_source.Records`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._names: dict[TopicName, str] = {}
        self._duplicate: str | None = None

    @property
    def why_incomplete(self) -> str | None:
        """A reason for a store that is only read, as a broker's answers, or that has two records of one topic.

        The second is known after `topics` was called. Only one of the two is read: the other has an old name with its
        cluster in it, or one that Pulsar would encode otherwise.
        """
        if self._duplicate is not None:
            return f"another record is of the same topic as that of {self._duplicate}"
        if callable(getattr(self._store, "put", None)):
            return None
        return "a broker's answers leave out what the caller may not see, and the segments of ledgers"

    @property
    def writable(self) -> ManagedLedgerRecords | None:
        """The same records, writable; None of a store that is only read."""
        if self.why_incomplete is not None:
            return None
        return ManagedLedgerRecords(cast("WritableMetadataStore", self._store))

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """The topics of these namespaces, or of all."""
        names: dict[TopicName, str] = {}
        for name in list_names(self._store, namespaces):
            topic = topic_of_managed_ledger(name)
            other = names.setdefault(topic, name)
            if other == name or self._is_claim(name):
                continue
            names[topic] = name
            if not self._is_claim(other):
                self._duplicate = name
        self._names |= names
        return list(names)

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """Read the records of these topics, as they are now, several at once; topics without a record are left out."""
        names = list(topics)
        found = bounded_map(
            lambda topic: read_record(self._store, self.name(topic)),
            names,
            at_once=CONCURRENCY,
            name="offload-records",
        )
        return {
            topic: record[0]
            for topic, record in zip(names, found, strict=True)
            if record is not None and not is_claim(record[0])
        }

    def read_priority(self, topic: TopicName) -> ReadPriority | None:
        """The tiered read priority of the topic's policies, in a store that has policies beside records."""
        return stored_priority(self._store, topic)

    def _is_claim(self, name: str) -> bool:
        """Return whether there is no record of this name, or a placeholder."""
        try:
            record = read_record(self._store, name)
        except FormatError:
            return False
        return record is None or is_claim(record[0])

    def name(self, topic: TopicName) -> str:
        """The managed ledger's name, by which its record is found."""
        return self._names.get(topic) or managed_ledger_of_topic(topic)


_TOPICS_AT_ONCE = 256
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
        names = list(topics)
        infos = concurrently(lambda topic: _read_file(self._store, self._files[topic]), names)
        return dict(zip(names, infos, strict=True))

    def read_priority(self, topic: TopicName) -> ReadPriority | None:
        """None: files are records only."""
        del topic
        return None


@contextmanager
def open_files(
    source: str | os.PathLike[str], tier: Tier, options: Mapping[str, object], own: Mapping[str, Any]
) -> Iterator[FileRecords]:
    """The records at a path or URL, which is opened with `own` options.

    Without any, a URL of the tier's driver is opened with `options`, those that the tier was opened with.

    Raises:
        OptionError: there is no record, two are of one topic, or a file's path does not name its topic.
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


RecordSource = str | os.PathLike[str] | Mapping[str, bytes | ManagedLedgerInfo]
"""A path or URL of a file or tree; `TOPIC=` before it, with `persistent://`, for a file whose path names no topic; the
URL of a metadata store; or records by topic."""

RELOCATIONS_OPTION = "relocations"
"""An option of any source: the file of a mapping."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")


class Records(Protocol):
    """Managed ledgers' records somewhere.

    Attributes:
        why_incomplete: the reason why objects that these records do not name must not be deleted; None if they are all
            records of a cluster, as they are now.
    """

    @property
    def why_incomplete(self) -> str | None: ...  # noqa: D102 - see the class

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """The topics that have a record, each once; those of other namespaces than these may be left out.

        Raises:
            StoreError, FormatError.
        """

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """The records of these topics, which `topics` has named; one that vanished meanwhile is left out.

        Raises:
            FormatError: a record cannot be parsed, with its place.
            StoreError: the place cannot be read.
        """

    def read_priority(self, topic: TopicName) -> ReadPriority | None:
        """The tiered read priority that the topic's policies set; None where none are known here. Errors as `read`."""


@contextmanager
def open_records(
    source: RecordSource, tier: Tier, options: Mapping[str, object], own: Mapping[str, object] | None = None
) -> Iterator[Records]:
    """Open the records of a source.

    Args:
        options: those that `tier` was opened with, for a URL of the same driver that has none of its `own`.
        own: the options of the source; and `relocations`, a mapping file of copies that were moved
            (docs/formats/relocations.md).

    Raises:
        OptionError, PluginError, StoreError; of values FormatError.
    """
    own = dict(own or {})
    relocations = own.pop(RELOCATIONS_OPTION, None)
    if relocations is not None:
        mapped = read_mapping(str(relocations))
        with open_records(source, tier, options, own) as records:
            yield _RelocatedRecords(records, mapped)
        return
    if isinstance(source, Mapping):
        if own:
            raise OptionError("options are of no use with records that are given as they are")
        yield _GivenRecords(source)
        return
    scheme = _SCHEME.match(source) if isinstance(source, str) else None
    if scheme is None or not registry.is_metadata_store(scheme[1]):
        with open_files(source, tier, options, own) as files:
            yield files
        return
    store = registry.make_metadata_store(scheme[1], str(source), own)
    try:
        yield StoreRecords(store)
    finally:
        store.close()


def read_priorities(
    records: Records, topics: Iterable[TopicName], asked: ReadPriority | None = None
) -> dict[TopicName, ReadPriority]:
    """The tiered read priorities of topics that have one: `asked`, or else that of their policies.

    Raises:
        StoreError, MetadataError: of the policies.
    """
    names = list(topics)
    found = [asked] * len(names) if asked is not None else concurrently(records.read_priority, names)
    return {topic: each for topic, each in zip(names, found, strict=True) if each is not None}


def require_complete(records: Records) -> list[TopicName]:
    """All topics of records that may decide about deletion: those of a cluster's metadata store itself.

    A broker reports only topics that the caller may see, and no segments; a tree of files may be old. Neither knows
    what it lacks.

    Raises:
        OptionError: they may not, and why.
        StoreError, FormatError: of the store.
    """
    _check_complete(records)
    topics = records.topics()
    _check_complete(records)  # by the names of all as well
    if not topics:
        raise OptionError(
            "by these records nothing is deleted: there is none of any managed ledger",
            expected="a cluster's metadata store, with its chroot",
        )
    return topics


def _check_complete(records: Records) -> None:
    if records.why_incomplete is not None:
        raise OptionError(
            f"by these records nothing is deleted: {records.why_incomplete}",
            expected="the metadata store itself: zk:HOST:2181, or sqlite:PATH",
        )


def in_parts(topics: Iterable[TopicName]) -> Iterator[list[TopicName]]:
    """Divide topics into parts, whose records are in memory together."""
    rest = iter(topics)
    while some := list(islice(rest, _TOPICS_AT_ONCE)):
        yield some


def read_each(
    records: Records, topics: Iterable[TopicName]
) -> Iterator[tuple[TopicName, ManagedLedgerInfo | FormatError]]:
    """The records of any number of topics; for one that cannot be parsed, its error.

    Raises:
        StoreError: as `Records.read`.
    """
    for some in in_parts(topics):
        try:
            yield from records.read(some).items()
        except FormatError as error:
            if len(some) == 1:
                yield some[0], error
            else:
                for topic in some:
                    yield from read_each(records, [topic])


class _RelocatedRecords:
    """Records with a mapping of relocated copies applied."""

    why_incomplete = "a mapping of moved copies was applied to them: they are not those of the cluster"

    def __init__(self, records: Records, mapped: Mapped) -> None:
        self._records = records
        self._mapped = mapped

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        return self._records.topics(namespaces)

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        return {
            topic: relocated(info, self._mapped.of(managed_ledger_of_topic(topic)))
            for topic, info in self._records.read(topics).items()
        }

    def read_priority(self, topic: TopicName) -> ReadPriority | None:
        return self._records.read_priority(topic)


class _GivenRecords:
    """Records that are given by topic."""

    why_incomplete = "they were given one by one"

    def __init__(self, source: Mapping[str, bytes | ManagedLedgerInfo]) -> None:
        self._infos: dict[TopicName, ManagedLedgerInfo] = {}
        for topic, record in source.items():
            name = parse_topic(topic)
            if name in self._infos:
                raise OptionError(f"two records are of the topic {name}", expected="one")
            self._infos[name] = _parsed(topic, record)

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        del namespaces
        return list(self._infos)

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        return {topic: self._infos[topic] for topic in topics}

    def read_priority(self, topic: TopicName) -> ReadPriority | None:
        del topic
        return None


def _parsed(topic: str, record: bytes | ManagedLedgerInfo) -> ManagedLedgerInfo:
    if isinstance(record, ManagedLedgerInfo):
        return record
    with placed(key=topic):
        return parse_stored_record(record).info
