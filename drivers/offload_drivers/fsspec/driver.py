"""The driver `fsspec`: a tier in any file system that fsspec knows, by the name of its protocol.

An object is a file at its key under the root, with its user metadata in a sidecar; a file without one is an object,
too. Bytes are read in ranges. An object becomes visible whole, by a rename where the file system renames, else by a
copy or a put (`files`). What fsspec has no word for is not declared: no create-only under a race, no user metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from offload_drivers.arguments import bad_range, check_range, checked_block, object_size
from offload_drivers.directory_walk import Entry, walk
from offload_drivers.filesystems import FilesystemPool, class_of_protocol
from offload_drivers.fsspec.errors import translated, wrong_storage_options
from offload_drivers.fsspec.files import entries, find, find_file, is_renaming, read
from offload_drivers.fsspec.options import checked_options, options_from_url
from offload_drivers.fsspec.uploads import (
    FsspecTier,
    begin,
    commit,
    delete_object,
    drop,
    no_object,
    object_and_metadata,
    put_object,
    uploads,
    write_block,
)
from offload_drivers.object_keys import KeySpace
from offload_drivers.object_metadata import checked_metadata
from offload_drivers.sidecar import SUFFIX
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
from offload_hooks.errors import ObjectNotFoundError, OffloadError, StoreError, StoreUnavailableError, placed

CAPABILITIES = Capabilities(user_metadata="sidecar", stale_uploads=True, range_bytes=8 << 20, ranges_ahead=4)


class FsspecDriver:
    """A tier in a file system of fsspec.

    Args:
        protocol: the name by which fsspec knows the file system: `sftp`, `oss`, `hf`.
        root: what follows `protocol://` in fsspec's own URLs: a host and a directory, a bucket and a prefix.
        storage_options: what fsspec makes the file system with, credentials among it: a dict, or a JSON object as
            text.
    """

    hook_spec_version = 1
    default_layers = ("retry",)

    def __init__(
        self, protocol: str, root: str, storage_options: Mapping[str, Any] | str | None = None
    ) -> None:
        self._options = checked_options(protocol=protocol, root=root, storage_options=storage_options)
        kind = class_of_protocol(self._options.protocol)
        try:
            path = str(kind._strip_protocol(self._options.url))
            of_url = kind._get_kwargs_from_urls(self._options.url)
        except Exception as error:
            raise wrong_storage_options(error, self._options) from error
        self._keys = KeySpace(prefix=path.rstrip("/") + "/", own_suffix=SUFFIX)
        made_with = {**of_url, **self._options.storage_options, "skip_instance_cache": True}
        self._pool = FilesystemPool(partial(self._make, kind, made_with), _shut)

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that a `fsspec+<protocol>:` URL stands for."""
        return options_from_url(url)

    def close(self) -> None:
        """Give back this process's connections; a later use makes new ones."""
        self._pool.close()

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        return DriverDescription(name="fsspec", location=self._options.location, capabilities=CAPABILITIES)

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        metadata = checked_metadata(key, content_type, user_metadata)
        with self._tier("begin an object", key) as tier:
            return begin(tier, key, metadata)

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag names the block's file."""
        view = checked_block(upload, part_number, offset, data, CAPABILITIES)
        with self._tier("write a block", upload.key) as tier:
            tag = write_block(tier, upload, part_number, view)
        return BlockReceipt(part_number=part_number, offset=offset, length=view.nbytes, tag=tag)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        object_size(upload, receipts, CAPABILITIES)
        with self._tier("commit an object", upload.key) as tier:
            found, metadata = commit(tier, upload, receipts, create_only)
        # The object is in place. What cannot be removed now is listed as a stale upload.
        with suppress(OffloadError), self._tier("remove an upload", upload.key) as tier:
            drop(tier, upload)
        return metadata.stat(upload.key, found.size_bytes, found.modified_at)

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        with placed(key=upload.key), self._tier("abort an upload") as tier:
            return drop(tier, upload)

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
        with self._tier("write an object", key) as tier:
            found, _ = put_object(tier, key, memoryview(data).cast("B"), metadata, create_only)
        return metadata.stat(key, found.size_bytes, found.modified_at)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        wanted = ByteRange(key=key, offset=offset, length=length)
        check_range(wanted)
        with self._tier("read", key) as tier:
            try:
                data = read(tier.filesystem, self._keys.name(key), offset, wanted.end)
            except Exception:
                _check_that_it_is_there(tier, wanted)
                raise
            if len(data) != length:
                _check_that_it_is_there(tier, wanted)
                if len(data) > length:
                    raise StoreError("the file system does not read in ranges", found=f"{len(data):,} bytes")
                raise StoreUnavailableError("fewer bytes were read than there are")
        return data

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        with self._tier("stat", key) as tier:
            found, metadata = object_and_metadata(tier, key)
        return metadata.stat(key, found.size_bytes, found.modified_at)

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        with self._tier("list") as tier:
            # Who renames has directories; elsewhere a root that is not there looks as an empty one.
            root = find(tier.filesystem, self._keys.prefix.rstrip("/"))
            if (root is None or root.is_file) and is_renaming(tier.filesystem):
                raise ObjectNotFoundError(f"the directory {self._options.location} does not exist")
        found = walk(self._entries, self._is_key, prefix, start_after)
        return (
            ListedObject(key=key, size_bytes=entry.size_bytes, modified_at=entry.modified_at)
            for key, entry in found
        )

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        for key in keys:
            self._keys.name(key)
        for key in keys:
            with self._tier("delete", key) as tier:
                delete_object(tier, key)
        return len(keys)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        with self._tier("list uploads") as tier:
            return iter(uploads(tier, prefix))

    def _make(self, kind: type[Any], options: Mapping[str, Any]) -> Any:
        try:
            return kind(**options)
        except (TypeError, ValueError) as error:
            raise wrong_storage_options(error, self._options) from error

    @contextmanager
    def _tier(self, doing: str, key: str | None = None) -> Iterator[FsspecTier]:
        """The tier for one call, which has a file system to itself, once `key` is known to be one."""
        if key is not None:
            self._keys.name(key)
        errors = partial(translated, doing, self._options, key)
        # Errors of a call are translated before the pool judges by them whether to keep the file system.
        with errors(), self._pool.lent() as filesystem, errors():
            yield FsspecTier(filesystem, self._keys, self._pool.lent)

    def _entries(self, base: str) -> list[Entry]:
        with self._tier("list") as tier:
            return entries(tier.filesystem, (self._keys.prefix + base).rstrip("/") or "/")

    def _is_key(self, text: str, *, is_directory: bool = False) -> bool:
        text = f"{text}/-" if is_directory else text
        return self._keys.key(self._keys.prefix + text) is not None


def _shut(filesystem: Any) -> None:
    """Close a connection that would outlive its file system; fsspec has no call for it.

    Those of HTTP, FTP and the like end with the file system. A client of paramiko is kept by its own thread.
    """
    client: Any = getattr(filesystem, "client", None)
    if hasattr(client, "open_sftp"):
        client.close()


def _check_that_it_is_there(tier: FsspecTier, wanted: ByteRange) -> None:
    found = find_file(tier.filesystem, tier.keys.name(wanted.key))
    if found is None:
        raise no_object(wanted.key)
    if wanted.end > found.size_bytes:
        raise bad_range(wanted, found.size_bytes)
