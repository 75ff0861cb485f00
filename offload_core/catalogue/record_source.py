"""Where managed ledgers' records come from: files, a metadata store by its URL, or values by topic.

Each of them says first which topics it has, and then reads the records of those that are wanted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from offload_core.catalogue.record_files import open_files
from offload_core.catalogue.record_store import StoreRecords
from offload_core.catalogue.topics import TopicName, managed_ledger_of_topic, parse_topic
from offload_core.metadata import ManagedLedgerInfo, parse_stored_record
from offload_core.metadata.relocations import Mapped, read_mapping, relocated
from offload_core.tier import Tier, registry
from offload_hooks.errors import FormatError, OptionError, placed

RecordSource = str | os.PathLike[str] | Mapping[str, bytes | ManagedLedgerInfo]
"""A path or URL of a file or tree; `TOPIC=` before it, with `persistent://`, for a file whose path names no topic; the
URL of a metadata store; or records by topic."""

RELOCATIONS_OPTION = "relocations"
"""An option of any source: the file of a mapping."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")


class Records(Protocol):
    """Managed ledgers' records somewhere.

    Attributes:
        why_incomplete: why nothing may be deleted because these records do not name it, in words; None if it may: they
            are all that a cluster has, as they are now.
    """

    @property
    def why_incomplete(self) -> str | None: ...  # noqa: D102 - see the class

    def topics(self, namespaces: Collection[str] | None = None) -> list[TopicName]:
        """The topics that have a record, each once; those of other namespaces than these may be left out.

        Raises:
            StoreError, FormatError.
        """

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """The records of these topics, which `topics` has named; one that has vanished meanwhile is left out.

        Raises:
            FormatError: a record that is none, with its place.
            StoreError: the place cannot be read.
        """


@contextmanager
def open_records(
    source: RecordSource,
    tier: Tier,
    options: Mapping[str, object],
    own: Mapping[str, object] | None = None,
) -> Iterator[Records]:
    """The records of a source, to be asked inside a `with`.

    Args:
        options: those that `tier` was opened with, for a URL of the same driver where there are none of its `own`.
        own: the options of the place itself; and `relocations`, a mapping file that says where copies are now which
            these records say to be elsewhere (docs/formats/relocations.md).

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


def require_complete(records: Records) -> list[TopicName]:
    """All topics of records that may decide what is deleted: a cluster's metadata store itself has them.

    A broker tells of its topics as far as the caller is authorised, and not of segments; a tree of files is a copy of
    another day. Neither knows what it lacks. That each record can be read, the caller sees when it reads them.

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


def read_each(
    records: Records, topics: Sequence[TopicName]
) -> Iterator[tuple[TopicName, ManagedLedgerInfo | FormatError]]:
    """The records of these topics; where one of them cannot be parsed, its error in its place.

    Raises:
        StoreError: as `Records.read`.
    """
    try:
        yield from records.read(topics).items()
        return
    except FormatError as error:
        if len(topics) == 1:
            yield topics[0], error
            return
    for topic in topics:
        yield from read_each(records, [topic])


class _RelocatedRecords:
    """Records as they would be if copies that were relocated were recorded there."""

    why_incomplete = "a mapping of moved copies was applied to them: they are not what the cluster goes by"

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


def _parsed(topic: str, record: bytes | ManagedLedgerInfo) -> ManagedLedgerInfo:
    if isinstance(record, ManagedLedgerInfo):
        return record
    with placed(key=topic):
        return parse_stored_record(record).info
