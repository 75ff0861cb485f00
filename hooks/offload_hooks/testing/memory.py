"""A tier in memory: a driver that does what the hooks demand and nothing else.

The suite is tried with it, and so can be whatever stands before a driver. All instances over one `MemoryTier` share
its objects, as processes share a store; another process sees none of them.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from offload_hooks import (
    BlockReceipt,
    ByteRange,
    Capabilities,
    DriverDescription,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    StaleUpload,
    Upload,
    WholeObject,
    hookimpl,
)
from offload_hooks.errors import (
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    UploadError,
)
from offload_hooks.whole_objects import check_size

CAPABILITIES = Capabilities(create_only=True, stale_uploads=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryObject:
    """An object in memory: its bytes by block, and the fields of `stat`."""

    blocks: tuple[bytes, ...]
    stat: ObjectStat

    @property
    def data(self) -> bytes:
        """All its bytes."""
        return b"".join(self.blocks)


@dataclass(slots=True, kw_only=True)
class OpenUpload:
    """An upload in memory: its metadata and the blocks so far, by their receipts."""

    content_type: str
    user_metadata: Mapping[str, str]
    started_at: datetime
    blocks: dict[int, tuple[BlockReceipt, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class MemoryTier:
    """State that all drivers on one tier share; readers and writers hold the lock."""

    objects: dict[str, MemoryObject] = field(default_factory=dict)
    uploads: dict[Upload, OpenUpload] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryDriver:
    """A tier in memory.

    Args:
        tier: storage that it shares with other instances; None for its own.
        capabilities: those that it declares and has.
    """

    hook_spec_version = 1

    def __init__(self, tier: MemoryTier | None = None, capabilities: Capabilities = CAPABILITIES) -> None:
        self.tier = tier or MemoryTier()
        self.capabilities = capabilities

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        return DriverDescription(name="memory", location="memory:", capabilities=self.capabilities)

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        check_key(key)
        upload = Upload(key=key, upload_id=uuid.uuid4().hex)
        metadata = lowered(key, user_metadata)
        with self.tier.lock:
            self.tier.uploads[upload] = OpenUpload(
                content_type=content_type, user_metadata=metadata, started_at=datetime.now(timezone.utc)
            )
        return upload

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag is one of its own."""
        kept = bytes(data)
        limits = self.capabilities
        if (
            not (1 <= part_number <= limits.max_blocks and 1 <= len(kept) <= limits.max_block_bytes)
            or offset < 0
        ):
            raise UploadError("a block that is too large, or no block", key=upload.key, block=part_number)
        receipt = BlockReceipt(
            part_number=part_number, offset=offset, length=len(kept), tag=f"{upload.upload_id}-{part_number}"
        )
        with self.tier.lock:
            blocks = self._open(upload).blocks
            if limits.ordered_parts and part_number not in (len(blocks), len(blocks) + 1):
                raise UploadError("a block that is not the next one", key=upload.key, block=part_number)
            blocks[part_number] = (receipt, kept)
        return receipt

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        with self.tier.lock:
            opened = self._open(upload)
            blocks = self.checked_blocks(upload, opened, receipts)
            stat = self.store(upload.key, blocks, opened.content_type, opened.user_metadata, create_only)
            del self.tier.uploads[upload]
            if self.capabilities.exclusive_uploads:
                for other in [other for other in self.tier.uploads if other.key == upload.key]:
                    del self.tier.uploads[other]
        return stat

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        with self.tier.lock:
            return self.tier.uploads.pop(upload, None) is not None

    @hookimpl
    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        content_type: str,
        user_metadata: Mapping[str, str],
        create_only: bool,
    ) -> ObjectStat:
        """See `TierHooks`."""
        check_key(key)
        return self.store(key, [bytes(data)], content_type, lowered(key, user_metadata), create_only)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        found = self._found(key)
        if offset < 0 or length < 1 or offset + length > found.stat.size_bytes:
            raise RangeError(
                "the object does not have this range",
                key=key,
                offset=offset,
                expected=f"up to byte {found.stat.size_bytes}",
                found=f"{length} bytes",
            )
        return memoryview(found.data)[offset : offset + length]

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""
        return [self.read_range(each.key, each.offset, each.length) for each in ranges]

    @hookimpl
    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `TierHooks`."""
        found = self._found(key)
        check_size(key, found.stat.size_bytes, most_bytes)
        return WholeObject(stat=found.stat, data=found.data)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        return self._found(key).stat

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        with self.tier.lock:
            stats = [each.stat for each in self.tier.objects.values() if each.stat.key.startswith(prefix)]
        for stat in sorted(stats, key=lambda stat: stat.key.encode()):
            if stat.key.encode() > start_after.encode():
                yield ListedObject(key=stat.key, size_bytes=stat.size_bytes, modified_at=stat.modified_at)

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        for key in keys:
            check_key(key)
        with self.tier.lock:
            for key in keys:
                self.tier.objects.pop(key, None)
        return len(keys)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        with self.tier.lock:
            found = [
                StaleUpload(upload=upload, started_at=opened.started_at)
                for upload, opened in self.tier.uploads.items()
                if upload.key.startswith(prefix)
            ]
        return iter(found)

    # --- overridden by drivers with planted faults -----------------------------------------------

    def store(
        self,
        key: str,
        blocks: Sequence[bytes],
        content_type: str,
        user_metadata: Mapping[str, str],
        create_only: bool,
    ) -> ObjectStat:
        """Put an object in place, in one step."""
        stat = ObjectStat(
            key=key,
            size_bytes=sum(map(len, blocks)),
            modified_at=datetime.now(timezone.utc),
            content_type=content_type,
            user_metadata=user_metadata,
        )
        with self.tier.lock:
            if create_only and self.capabilities.create_only and key in self.tier.objects:
                raise ObjectExistsError("there is an object of this key already", key=key)
            self.tier.objects[key] = MemoryObject(blocks=tuple(blocks), stat=stat)
        return stat

    def checked_blocks(
        self, upload: Upload, opened: OpenUpload, receipts: Sequence[BlockReceipt]
    ) -> list[bytes]:
        """The blocks that the receipts name, which follow each other without hole or overlap."""
        end, last_part, blocks = 0, 0, []
        for receipt in receipts:
            stored, block = opened.blocks.get(receipt.part_number, (None, b""))
            if receipt != stored or receipt.offset != end or receipt.part_number != last_part + 1:
                raise UploadError(
                    "the blocks are not those of the upload, or do not follow each other",
                    key=upload.key,
                    block=receipt.part_number,
                    expected=f"a block at byte {end}",
                    found=receipt.offset,
                )
            end, last_part = end + receipt.length, receipt.part_number
            blocks.append(block)
        if not blocks or min((len(block) for block in blocks[:-1]), default=end) < min(
            end, self.capabilities.min_block_bytes
        ):
            raise UploadError("no blocks, or one that is too small", key=upload.key)
        return blocks

    def _open(self, upload: Upload) -> OpenUpload:
        try:
            return self.tier.uploads[upload]
        except KeyError:
            raise UploadError("there is no such upload", key=upload.key, found=upload.upload_id) from None

    def _found(self, key: str) -> MemoryObject:
        check_key(key)
        with self.tier.lock:
            found = self.tier.objects.get(key)
        if found is None:
            raise ObjectNotFoundError("there is no object of this key", key=key)
        return found


class MemoryBackDoor:
    """The objects of a `MemoryTier` without its driver."""

    def __init__(self, tier: MemoryTier) -> None:
        self._tier = tier

    def put(self, key: str, data: bytes, user_metadata: Mapping[str, str], content_type: str) -> None:
        """See `BackDoor`."""
        MemoryDriver(self._tier).store(key, [data], content_type, dict(user_metadata), False)

    def get(self, key: str) -> bytes | None:
        """See `BackDoor`."""
        with self._tier.lock:
            found = self._tier.objects.get(key)
        return None if found is None else found.data

    def keys(self) -> set[str]:
        """See `BackDoor`."""
        with self._tier.lock:
            return set(self._tier.objects)

    def part_sizes(self, key: str) -> list[int] | None:
        """See `BackDoor`."""
        return [len(block) for block in self._tier.objects[key].blocks]


def check_key(key: str) -> None:
    """Refuse a bad key (`InvalidKeyError`)."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidKeyError("a key must be text that UTF-8 can hold", key=ascii(key)) from None
    if "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise InvalidKeyError("a key is parts with a slash between them", key=key)


def lowered(key: str, user_metadata: Mapping[str, str]) -> dict[str, str]:
    """User metadata with names in lower case; `OptionError` for two that are then one."""
    metadata = {name.lower(): value for name, value in user_metadata.items()}
    if len(metadata) < len(user_metadata):
        raise OptionError("two names of the user metadata differ in case only", key=key)
    return metadata
