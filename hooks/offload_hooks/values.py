"""The values that cross the hooks: arguments and answers of a driver.

All are frozen. Sizes and offsets are in bytes, ranges half-open and never empty, times are aware `datetime`s in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Literal

_EARLIEST = datetime(1000, 1, 1, tzinfo=timezone.utc)
_LATEST = datetime(9000, 1, 1, tzinfo=timezone.utc)

SETTLED_S = 2.0
"""How old an object's last change must be for its time to tell it from any other change: times may be whole seconds."""


def utc_time(seconds: float) -> datetime:
    """A store's time as an aware `datetime` in UTC, given in seconds since 1970.

    A time before the year 1000 or after 9000 (files can have any) becomes the nearest of these, so that lengths of time
    can be added.
    """
    try:
        return min(max(datetime.fromtimestamp(seconds, timezone.utc), _EARLIEST), _LATEST)
    except (OverflowError, ValueError, OSError):
        return _LATEST if seconds > 0 else _EARLIEST


ReadableBuffer = bytes | bytearray | memoryview
"""Bytes that a driver takes and gives: contiguous, and read only for all but their maker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """`length` bytes of the object `key` from byte `offset` on; `offset` ≥ 0, `length` ≥ 1."""

    key: str
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The offset of the first byte after the range."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A data object that is being written: not visible until it is committed.

    `upload_id` is the driver's own and opaque; together with `key` it must be enough for another process to
    write further blocks, commit or abort.
    """

    key: str
    upload_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReceipt:
    """A driver's receipt for a stored block; `commit_data` takes all of an upload's receipts.

    `tag` is the driver's own (an S3 part's ETag, say).
    """

    part_number: int
    offset: int
    length: int
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleUpload:
    """An upload that was begun and neither committed nor aborted."""

    upload: Upload
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedObject:
    """An object as a listing shows it.

    Attributes:
        storage_class: the store's own name of it (`STANDARD_IA`, `NEARLINE`, `Cool`); None where its listing has none.
        version: the store's own mark of the content (S3's and Azure's ETag, GCS's generation), another one after each
            write; None where the store has none.

    No request is made for either.
    """

    key: str
    size_bytes: int
    modified_at: datetime
    storage_class: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStat:
    """An object as `stat` shows it.

    `user_metadata` has lower-case keys. It is empty for an object that was stored without any. `storage_class` and
    `version` are those of `ListedObject`; the answer of a commit may lack them. No request is made for them.
    """

    key: str
    size_bytes: int
    modified_at: datetime
    content_type: str = "application/octet-stream"
    user_metadata: Mapping[str, str] = field(default_factory=dict)
    storage_class: str | None = None
    version: str | None = None

    def as_listed(self) -> ListedObject:
        """The object as a listing shows it."""
        return ListedObject(
            key=self.key,
            size_bytes=self.size_bytes,
            modified_at=self.modified_at,
            storage_class=self.storage_class,
            version=self.version,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeObject:
    """All bytes of an object, and its stat of the moment when they were read; the stat may lack the storage class."""

    stat: ObjectStat
    data: ReadableBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Abilities of a driver beyond those that the hooks demand, and its limits.

    Attributes:
        create_only: a commit with `create_only=True` fails when the key exists, also under a race.
        ordered_parts: blocks must be written one after another, in order; the Tier serialises them.
        exclusive_uploads: a commit ends all other uploads of its key.
        user_metadata: `native` in the store, or a `sidecar` beside the object.
        stale_uploads: `list_uploads` and `abort_data` of another process's upload work.
        min_block_bytes: the least size of every block but the last.
        max_block_bytes: the largest size of a block.
        max_blocks: the most blocks of one object.
        range_bytes: the best size of a bulk read's ranges.
        ranges_ahead: the number of ranges to fetch ahead while one is decoded; 0 if the system reads ahead by itself.
        lists_from_any_key: a listing that starts after a key costs no more than its own pages, so that a long one may
            be made of several at once.
    """

    create_only: bool = False
    ordered_parts: bool = False
    exclusive_uploads: bool = False
    user_metadata: Literal["native", "sidecar"] = "native"
    stale_uploads: bool = False
    min_block_bytes: int = 1
    max_block_bytes: int = 2**63 - 1
    max_blocks: int = 2**31 - 1
    range_bytes: int = 8 << 20
    ranges_ahead: int = 4
    lists_from_any_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDescription:
    """Name and place of a driver: for messages, records and `offload plugins`.

    `location` is a URL of the tier's root, without credentials. `driver_metadata` goes into offload contexts
    (Pulsar's property names, e.g. `bucket`), never with a secret.
    """

    name: str
    location: str
    capabilities: Capabilities
    driver_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """The tier, as text that no other has.

        Its place alone is not enough: two services may have a bucket of one name.
        """
        return json.dumps([self.name, self.location, sorted(self.driver_metadata.items())])
