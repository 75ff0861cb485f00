"""Writers into a tier: golden objects as they were stored, synthetic ones with chosen names and times."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from entries import WrittenObject
from golden import GOLDEN, GoldenObject, stored_objects

from offload_core.format.codec.object_format import ObjectKey
from offload_core.storage.tier import Tier, open_store
from offload_hooks import Capabilities, DriverDescription, ListedObject, ObjectStat, hookimpl
from offload_hooks.errors import ObjectNotFoundError, RangeError, StoreError
from pulsar_offload import TierReader

MANAGED_LEDGER = "acme/cold/persistent/orders"
TOPIC = "persistent://acme/cold/orders"
CLUSTER = "east"
MODIFIED_AT = datetime(2024, 5, 1, 12, 0, 0, tzinfo=UTC)


def put(store: Tier, key: str, data: bytes, metadata: Mapping[str, str]) -> None:
    """Store an object whole, as a data object or an index is."""
    if key.endswith("-index"):
        store.write_index(key, data, user_metadata=metadata)
        return
    upload = store.begin_data(key, user_metadata=metadata)
    receipts = [store.write_block(upload, 1, 0, data)] if data else []
    store.commit_data(upload, receipts)


# --- golden ------------------------------------------------------------------------------------


def lay_out_broker_objects(root: Path, topics: Collection[str] | None = None) -> None:
    """The objects that a broker wrote, into a local tier: all, or those of topics `acme/cold/<topic>`."""
    with open_store(root) as store:
        put_broker_objects(store, topics)


def put_broker_objects(store: Tier, topics: Collection[str] | None = None, *, named: bool = True) -> None:
    """The same into any tier, perhaps without the names of their topics."""
    for key, data, metadata in stored_objects(topics):
        if not named:
            del metadata["managedledgername"]
        put(store, key, data, metadata)


def lay_out_case(root: Path, folder: str, name: str) -> None:
    """The two objects of a case of `offloader/<folder>`, with their user metadata."""
    path = GOLDEN / "offloader" / folder / name
    case = json.loads((path / "case.json").read_text())
    with open_store(root) as store:
        for part in ("data", "index"):
            data = gzip.decompress((path / f"{part}.bin.gz").read_bytes())
            put(store, case[part]["key"], data, case[part]["user_metadata"])


# --- synthetic ---------------------------------------------------------------------------------


def uuid_of(number: int) -> UUID:
    """A different uuid for each number."""
    return UUID(f"00000000-0000-4000-8000-{number:012x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names in an object's user metadata; a name that is None is left out."""

    managed_ledger: str | None = MANAGED_LEDGER
    cluster: str | None = CLUSTER
    version: str | None = "1"

    def as_metadata(self, role: str) -> dict[str, str]:
        """As Pulsar writes it."""
        metadata = {
            "s3managedledgeroffloaderformatversion": self.version,
            "managedledgername": self.managed_ledger,
            "pulsarclustername": self.cluster,
            "role": role,
        }
        return {name: value for name, value in metadata.items() if value is not None}


def put_object(
    tier: Tier,
    written: WrittenObject | GoldenObject,
    uuid: UUID | None = None,
    *,
    names: Names | None = None,
    folder: str = "",
    parts: Sequence[str] = ("data", "index"),
) -> ObjectKey:
    """Store an object, or one of its two parts, under this uuid or its own; its data key."""
    key = replace(written.key, uuid=uuid or written.key.uuid, folder=folder or written.key.folder)
    for part, name, data in (("data", key.data_key, written.data), ("index", key.index_key, written.index)):
        if part in parts:
            put(tier, name, data, {} if key.is_mapfile else (names or Names()).as_metadata(part))
    return key


def lay_out(
    root: Path,
    written: WrittenObject,
    *,
    attempt: int = 0,
    modified_at: datetime = MODIFIED_AT,
    **options: Any,
) -> str:
    """An object into the local tier at `root`; its data key. `attempt` numbers the uuid; `options` of `put_object`."""
    with open_store(root) as store:
        key = put_object(store, written, uuid_of(attempt), **options)
    for part, name in (("data", key.data_key), ("index", key.index_key)):
        if part in options.get("parts", (part,)):
            os.utime(root / name, (modified_at.timestamp(), modified_at.timestamp()))
    return key.data_key


class MemoryDriver:
    """A read-only store of bytes that writes down every range it is asked for.

    Args:
        objects: key → bytes.
        metadata: the user metadata of all of them; `more_metadata` what some have besides.
        range_bytes, ranges_ahead: the capabilities.
        make: what a range's bytes are handed out as.
        fail_at: reads that reach this byte fail with a `StoreError`.
    """

    hook_spec_version = 1

    def __init__(
        self,
        objects: Mapping[str, bytes],
        *,
        metadata: Mapping[str, str] | None = None,
        more_metadata: Mapping[str, Mapping[str, str]] | None = None,
        range_bytes: int = 8 << 20,
        ranges_ahead: int = 4,
        make: Callable[[bytes], object] = bytes,
        fail_at: int | None = None,
    ) -> None:
        self.objects = dict(objects)
        self.reads: list[tuple[str, int, int]] = []
        self._metadata = {} if metadata is None else dict(metadata)
        self._more_metadata = {} if more_metadata is None else dict(more_metadata)
        self._capabilities = Capabilities(range_bytes=range_bytes, ranges_ahead=ranges_ahead)
        self._make = make
        self._fail_at = fail_at

    @hookimpl
    def describe(self) -> DriverDescription:
        return DriverDescription(name="memory", location="memory:", capabilities=self._capabilities)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> object:
        self.reads.append((key, offset, length))
        if self._fail_at is not None and offset + length > self._fail_at:
            raise StoreError("the store broke", key=key, offset=offset)
        data = self._find(key)
        if not (0 <= offset < offset + length <= len(data)):
            raise RangeError("no such range", key=key, offset=offset)
        return self._make(data[offset : offset + length])

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        return ObjectStat(
            key=key,
            size_bytes=len(self._find(key)),
            modified_at=MODIFIED_AT,
            user_metadata=self._metadata | self._more_metadata.get(key, {}),
        )

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        found = [
            ListedObject(key=key, size_bytes=len(data), modified_at=MODIFIED_AT)
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix) and key > start_after
        ]
        return iter(found)

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        for key in keys:
            self.objects.pop(key, None)
        return len(keys)

    @hookimpl
    def begin_data(self) -> None:
        raise StoreError("read only")

    write_block = commit_data = abort_data = write_index = begin_data

    def _find(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectNotFoundError("no such object", key=key)
        return self.objects[key]


def numbered(*written: WrittenObject) -> dict[str, bytes]:
    """Objects for a `MemoryDriver`, their uuids numbered from 0: of two attempts the later counts."""
    objects = {}
    for attempt, each in enumerate(written):
        key = replace(each.key, uuid=uuid_of(attempt))
        objects |= {key.data_key: each.data, key.index_key: each.index}
    return objects


def in_memory(*written: WrittenObject, names: Names | None = None, **options: Any) -> TierReader:
    """A tier of these objects in memory, of one topic; `options` are those of `MemoryDriver`."""
    metadata = (Names() if names is None else names).as_metadata("data")
    return TierReader(Tier(MemoryDriver(numbered(*written), metadata=metadata, **options)))


# --- A local tier's folder, by the back door of the conformance suite.


class Folder:
    """Plain files, with their metadata beside them."""

    def __init__(self, root):
        self._root = root

    def put(self, key, data, user_metadata, content_type):
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"version": 1, "content_type": content_type, "user_metadata": dict(user_metadata)}
        path.with_name(f"{path.name}.metadata.json").write_text(json.dumps(about))
        path.write_bytes(data)

    def get(self, key):
        path = self._root / key
        return path.read_bytes() if path.is_file() else None

    def keys(self):
        return {str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file()}
