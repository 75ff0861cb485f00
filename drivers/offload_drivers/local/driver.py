"""The driver `local`: a tier in a directory, on local disks or anything mounted.

An object is a file at its key under the root, with its user metadata in a sidecar; a file without one is an
object, too. Nothing of the standard is assumed beyond POSIX: atomic renames, `flock` and `fsync`. Objects
appear whole or not at all, also after a crash (`commit` says what each step leaves), create-only
holds between processes, and no key leaves the root (`paths`). Directories are never removed: another
process may be about to use them.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from offload_drivers.arguments import bad_range, checked_block, object_size
from offload_drivers.local.commit import delete_objects, object_and_metadata, put_in_place
from offload_drivers.local.files import opened_directory, translated
from offload_drivers.local.listing import list_keys
from offload_drivers.local.paths import (
    check_key,
    checked_mode,
    checked_root,
    root_from_url,
    root_url,
    split_key,
)
from offload_drivers.local.uploads import Staging
from offload_drivers.object_metadata import checked_metadata
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
    hookimpl,
)
from offload_hooks.errors import UploadError
from offload_hooks.values import utc_time

# Memory for large reads, which comes back by itself when it has no references any more, and is used again.
#
# New memory has to be cleared and mapped page by page when it is first touched: that takes several times as long as to
# read a cached file into memory that is there. What is kept is bounded.


RANGE_BYTES = 2 << 20
"""What the ranges of a bulk read should be: it stays in the processor's cache until it is decoded."""

ROOM_BYTES = RANGE_BYTES + (512 << 10)
"""Size of the buffers that are used again; smaller and larger reads get memory of their own."""

LEAST_BYTES = 256 << 10

_free: deque[bytearray] = deque(maxlen=4)


def room_for(length: int) -> memoryview:
    """`length` writable bytes, with whatever was in them before."""
    if not LEAST_BYTES <= length <= ROOM_BYTES:
        return memoryview(bytearray(length))
    try:
        buffer = _free.pop()
    except IndexError:
        buffer = bytearray(ROOM_BYTES)
    lease = (ctypes.c_ubyte * length).from_buffer(
        buffer
    )  # views keep it alive; when it goes, the buffer is free
    weakref.finalize(lease, _free.append, buffer).atexit = False
    return memoryview(lease).cast("B")


CAPABILITIES = Capabilities(
    create_only=True, user_metadata="sidecar", stale_uploads=True, range_bytes=RANGE_BYTES, ranges_ahead=0
)


class LocalDriver:
    """A tier in a directory.

    Args:
        root: the directory's absolute path; it is made by the first write.
        mode: of files that are created, in octal; directories let search whom it lets read. The umask takes away from
            it.
    """

    hook_spec_version = 1
    pulsar_driver: str | None = None
    """Pulsar's name of the driver that it was opened as, if it has one."""

    def __init__(self, root: str | os.PathLike[str], mode: str = "0600") -> None:
        self._root = checked_root(root)
        self._staging = Staging(self._root, checked_mode(mode))

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that a `file:` URL stands for."""
        return {"root": root_from_url(url)}

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        return DriverDescription(
            name="local",
            location=root_url(self._root),
            capabilities=CAPABILITIES,
            driver_metadata=(
                {} if self.pulsar_driver is None else {"managedLedgerOffloadDriver": self.pulsar_driver}
            ),
        )

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        metadata = checked_metadata(key, content_type, user_metadata)
        check_key(key)
        with translated("begin an object", self._root, key):
            self._check_way(key)
            return self._staging.begin(key, metadata)

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag is the upload's id."""
        view = checked_block(upload, part_number, offset, data, CAPABILITIES)
        with translated("write a block", self._root, upload.key):
            self._staging.write(upload, view, offset)
        return BlockReceipt(part_number=part_number, offset=offset, length=view.nbytes, tag=upload.upload_id)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        size_bytes = object_size(upload, receipts, CAPABILITIES)
        for receipt in receipts:
            if receipt.tag != upload.upload_id:
                raise UploadError(
                    "a receipt is not of this upload", key=upload.key, block=receipt.part_number
                )
        with translated("commit an object", self._root, upload.key):
            metadata = self._staging.metadata(upload)
            info = put_in_place(self._staging, upload, size_bytes, create_only)
        return metadata.stat(upload.key, info.st_size, utc_time(info.st_mtime))

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        with translated("abort an upload", self._root, upload.key):
            return self._staging.drop(upload)

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
        metadata = checked_metadata(key, content_type, user_metadata)
        view = memoryview(data).cast("B")
        check_key(key)
        with translated("write an object", self._root, key):
            self._check_way(key)
            upload = self._staging.begin(key, metadata)
            try:
                self._staging.write(upload, view, 0)
                info = put_in_place(self._staging, upload, view.nbytes, create_only)
            except Exception:
                self._staging.drop(upload)
                raise
        return metadata.stat(key, info.st_size, utc_time(info.st_mtime))

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `TierHooks`."""
        folder, name = split_key(key)
        with (
            translated("read", self._root, key),
            opened_directory(self._root, folder) as there,
            there.opened_object(name) as descriptor,
        ):
            wanted = ByteRange(key=key, offset=offset, length=length)
            size_bytes = os.fstat(descriptor).st_size
            if offset < 0 or length < 1 or wanted.end > size_bytes:
                raise bad_range(wanted, size_bytes)
            data = room_for(length)
            done = 0
            while done < length:  # again for more than 2 GiB, or after a signal
                more = os.preadv(descriptor, [data[done:]], offset + done)
                if not more:  # another process cut the file meanwhile
                    raise bad_range(wanted, offset + done)
                done += more
            return data

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        with translated("stat", self._root, key):
            info, metadata = object_and_metadata(self._staging, key)
        return metadata.stat(key, info.st_size, utc_time(info.st_mtime))

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        return list_keys(self._root, prefix, start_after)

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        for key in keys:
            check_key(key)
        with translated("delete", self._root):
            delete_objects(self._staging, keys)
        return len(keys)

    def _check_way(self, key: str) -> None:
        """Refuse a key that a link is in the way of, before anything is stored for it."""
        with suppress(FileNotFoundError), opened_directory(self._root, split_key(key)[0]):
            pass

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        with translated("list uploads", self._root):
            os.stat(self._root)
            return iter(list(self._staging.uploads(prefix)))
