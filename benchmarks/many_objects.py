"""A tier of a million objects that take no room, behind a store that answers each request after 30 ms; its records.

Ledgers are numbered, and one number after another is a topic's. All have the same bytes; what an object is called and
says of itself follows from its number, so that nothing is kept but the keys that were deleted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from entries import pip17_object
from records import closed
from tiers import MODIFIED_AT, Names

from benchmarks.material import message_entries
from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import ManagedLedgerInfo, OffloadContext
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.tier import Tier
from offload_hooks import Capabilities, DriverDescription, ListedObject, ObjectStat, WholeObject, hookimpl
from offload_hooks.errors import ObjectNotFoundError, RangeError, StoreError

REQUEST_S = 0.03
LISTED_AT_ONCE = 1000
"""Keys that one request of a listing answers, as in S3; as many are deleted by one."""


@dataclass(frozen=True, slots=True)
class Many:
    """So many topics of so many ledgers; each ledger is a data object and an index."""

    topics: int = 1000
    ledgers_each: int = 500

    @property
    def ledgers(self) -> int:
        """Of all topics."""
        return self.topics * self.ledgers_each

    @property
    def objects(self) -> int:
        """Data and index objects."""
        return 2 * self.ledgers

    def managed_ledger(self, topic: int) -> str:
        """A topic's managed ledger, by its number."""
        return f"many/cold/persistent/topic-{topic:06}"

    def key(self, ledger: int) -> ObjectKey:
        """A ledger's key, by its number."""
        return ObjectKey(folder="", uuid=UUID(int=ledger), ledger_id=ledger, is_index=False)


class ManyObjects:
    """A driver of these objects, from which they can be deleted; each request takes `request_s`.

    Attributes:
        requests: how many were made.
        deleted: the keys that were.
    """

    hook_spec_version = 1

    def __init__(self, many: Many, *, request_s: float = REQUEST_S) -> None:
        entries = message_entries(100, 10, Compression.NONE)[:4]
        written = pip17_object(entries)
        self._many = many
        self._bytes = {False: bytes(written.data), True: bytes(written.index)}
        self._request_s = request_s
        self._lock = threading.Lock()
        self.entries = len(entries)
        self.size = sum(map(len, entries))
        self.requests = 0
        self.deleted: set[str] = set()

    @hookimpl
    def describe(self) -> DriverDescription:
        """What it can do."""
        return DriverDescription(name="memory", location="memory:many", capabilities=Capabilities())

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> bytes:
        """Bytes of an object."""
        self._wait()
        data = self._bytes[self._find(key).is_index]
        if not 0 <= offset < offset + length <= len(data):
            raise RangeError("no such range", key=key, offset=offset)
        return data[offset : offset + length]

    @hookimpl
    def read_object(self, key: str) -> WholeObject:
        """An object with its stat, as S3 answers both."""
        stat = self.stat(key)
        return WholeObject(stat=stat, data=self._bytes[self._find(key).is_index])

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """What is known of an object."""
        self._wait()
        found = self._find(key)
        assert found.ledger_id is not None
        names = Names(managed_ledger=self._many.managed_ledger(found.ledger_id // self._many.ledgers_each))
        return ObjectStat(
            key=key,
            size_bytes=len(self._bytes[found.is_index]),
            modified_at=MODIFIED_AT,
            user_metadata=names.as_metadata("index" if found.is_index else "data"),
        )

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """The objects, many with each request."""
        listed = 0
        for ledger in range(self._many.ledgers):
            key = self._many.key(ledger)
            for name, is_index in ((key.data_key, False), (key.index_key, True)):
                if name <= start_after or not name.startswith(prefix) or name in self.deleted:
                    continue
                if listed % LISTED_AT_ONCE == 0:
                    self._wait()
                listed += 1
                size = len(self._bytes[is_index])
                yield ListedObject(key=name, size_bytes=size, modified_at=MODIFIED_AT)

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """Delete objects, many with each request."""
        for _ in range(0, len(keys), LISTED_AT_ONCE):
            self._wait()
        self.deleted.update(key for key in keys if parse_key(key) is not None)  # not what lies beside them
        return len(keys)

    @hookimpl
    def abort_data(self) -> bool:
        """Nothing is ever under way."""
        return False

    @hookimpl
    def begin_data(self, key: str) -> None:
        """It cannot be written."""
        raise StoreError("read only", key=key)

    @hookimpl
    def write_block(self) -> None:
        """It cannot be written."""
        raise StoreError("read only")

    @hookimpl
    def commit_data(self) -> None:
        """It cannot be written."""
        raise StoreError("read only")

    @hookimpl
    def write_index(self, key: str) -> None:
        """It cannot be written."""
        raise StoreError("read only", key=key)

    def _find(self, key: str) -> ObjectKey:
        found = parse_key(key)
        if (
            found is None
            or found.ledger_id is None
            or found.ledger_id >= self._many.ledgers
            or key in self.deleted
            or replace(found, is_index=False) != self._many.key(found.ledger_id)
        ):
            raise ObjectNotFoundError("no such object", key=key)
        return found

    def _wait(self) -> None:
        with self._lock:
            self.requests += 1
        time.sleep(self._request_s)


def write_records(file: Path, many: Many, driver: ManyObjects, *, forgotten: Collection[int] = ()) -> str:
    """The topics' records, as after complete offloads, in an SQLite file; its URL. Ledgers that are `forgotten` are in
    no record, so that their objects are orphans."""
    place, forgotten = tier_record(Tier(driver)), set(forgotten)
    url = f"sqlite:{file}"
    store = open_metadata_store(url, {"create": "true", "synchronous": "normal"})
    try:
        records = ManagedLedgerRecords(store)
        for topic in range(many.topics):
            begin = topic * many.ledgers_each
            of_topic = []
            for ledger in range(begin, begin + many.ledgers_each):
                if ledger in forgotten:
                    continue
                context = OffloadContext(
                    uuid=many.key(ledger).uuid, complete=True, timestamp_ms=1_714_000_000_000, driver=place
                )
                record = closed(ledger, driver.entries, context)
                of_topic.append(replace(record, info=replace(record.info, size=driver.size)))
            records.write(many.managed_ledger(topic), ManagedLedgerInfo(ledgers=tuple(of_topic)), None)
    finally:
        store.close()
    return url
