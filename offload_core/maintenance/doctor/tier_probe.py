"""The Tier as the checks use it: it remembers what was asked last, and everything that was made.

All objects get keys under one prefix that cannot be guessed, `offload-doctor-<uuid>-`. It has no slash: a store of
directories would keep an empty one.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar
from uuid import uuid4

from offload_core.storage.tier import Tier
from offload_hooks import BlockReceipt, ByteRange, ListedObject, ObjectStat, StaleUpload, Upload

NAME = "offload-doctor-"
_PERIOD = 1_000_003
"""Prime, so that no two parts of an object have the same bytes."""

_T = TypeVar("_T")


class Sample:
    """The bytes of a made object, of any size: random, so that nothing on the way compresses them."""

    def __init__(self) -> None:
        self._bytes = os.urandom(_PERIOD)

    def at(self, offset: int, length: int) -> bytes:
        """`length` bytes from byte `offset`."""
        begin = offset % _PERIOD
        repeated = self._bytes * ((begin + length) // _PERIOD + 1)
        return repeated[begin : begin + length]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An object to read.

    Attributes:
        key: its key.
        size_bytes: its size, at least 1.
        middle: an offset in its middle; where two parts meet, if it was made here.
        is_sample: whether its bytes are those of the sample; they are unknown otherwise.
    """

    key: str
    size_bytes: int
    middle: int
    is_sample: bool


class TierProbe:
    """A Tier under examination; the methods are those of the Tier.

    Attributes:
        tier: the Tier.
        prefix: what all keys begin with that are made here.
        hook: the hook that was called last, to know what an error came from.
        keys: of all objects that may be there because of us.
        uploads: all that were begun here and not seen to be gone.
        receipts: of the parts of the data object that is being made.
        subject: the object that the checks of reading read, once there is one.
        sample: the bytes of all objects that are made.
    """

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.description = tier.describe()
        self.capabilities = self.description.capabilities
        self.prefix = f"{NAME}{uuid4()}-"
        self.hook = "describe"
        self.keys: dict[str, None] = {}
        self.uploads: dict[Upload, None] = {}
        self.receipts: list[BlockReceipt] = []
        self.subject: Subject | None = None
        self.sample = Sample()

    def key(self, name: str) -> str:
        """The key of one of our objects."""
        return self.prefix + name

    def write_index(
        self, key: str, data: bytes, user_metadata: Mapping[str, str], *, create_only: bool = False
    ) -> ObjectStat:
        """See `Tier`."""
        self.hook = "write_index"
        self.keys[key] = None
        return self.tier.write_index(key, data, user_metadata=user_metadata, create_only=create_only)

    def begin_data(self, key: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `Tier`."""
        self.hook = "begin_data"
        self.keys[key] = None
        upload = self.tier.begin_data(key, user_metadata=user_metadata)
        self.uploads[upload] = None
        return upload

    def write_block(self, upload: Upload, part_number: int, offset: int, data: bytes) -> BlockReceipt:
        """See `Tier`."""
        self.hook = "write_block"
        return self.tier.write_block(upload, part_number, offset, data)

    def commit_data(
        self, upload: Upload, receipts: Sequence[BlockReceipt], *, create_only: bool
    ) -> ObjectStat:
        """See `Tier`."""
        self.hook = "commit_data"
        stat = self.tier.commit_data(upload, receipts, create_only=create_only)
        self.uploads.pop(upload, None)
        return stat

    def abort_data(self, upload: Upload) -> bool:
        """See `Tier`."""
        self.hook = "abort_data"
        return self.tier.abort_data(upload)

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `Tier`."""
        self.hook = "read_range"
        return self.tier.read_range(key, offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `Tier`."""
        self.hook = "read_ranges"
        return self.tier.read_ranges(ranges)

    def stat(self, key: str) -> ObjectStat:
        """See `Tier`."""
        self.hook = "stat"
        return self.tier.stat(key)

    def list_objects(self, prefix: str = "", start_after: str = "", *, limit: int) -> list[ListedObject]:
        """The first `limit` objects; see `Tier`."""
        self.hook = "list_objects"
        return _first(self.tier.list_objects(prefix, start_after), limit)

    def list_uploads(self, prefix: str, *, limit: int) -> list[StaleUpload]:
        """The first `limit` uploads; see `Tier`."""
        self.hook = "list_uploads"
        return _first(self.tier.list_uploads(prefix), limit)

    def delete(self, keys: Sequence[str]) -> int:
        """See `Tier`."""
        self.hook = "delete"
        return self.tier.delete(keys)


def _first(found: Iterator[_T], limit: int) -> list[_T]:
    """The first `limit`; a listing that is a generator is ended here, not when it happens to be collected."""
    try:
        return list(islice(found, limit))
    finally:
        if isinstance(found, Generator):
            found.close()
