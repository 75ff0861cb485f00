"""The driver `hdfs`: a tier in a directory of an HDFS file system.

An object is a file at its key under the root, with its user metadata in a sidecar; a file without one is an object,
too. Objects appear whole or not at all, also after a crash, and create-only holds between processes (`commit` says
what each step leaves). Every request has a deadline. Directories are never removed: another process may be about to use
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from offload_drivers.arguments import bad_range, check_range, checked_block, object_size
from offload_drivers.directory_walk import Entry, walk
from offload_drivers.hdfs.commit import delete_object, no_object, object_and_metadata, put_in_place
from offload_drivers.hdfs.connection import Connections
from offload_drivers.hdfs.options import ALIASES, checked_options, options_from_url
from offload_drivers.hdfs.paths import HdfsPaths
from offload_drivers.hdfs.runs import Runs, new_name
from offload_drivers.hdfs.uploads import HdfsTier, begin, drop, folder_of, uploads
from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
from offload_drivers.upload_records import gone
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
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import InvalidKeyError, ObjectNotFoundError, OffloadError, placed
from offload_hooks.values import utc_time


def list_keys(tier: HdfsTier, prefix: str, start_after: str) -> Iterator[ListedObject]:
    """List the objects whose key begins with `prefix` and comes after `start_after`.

    Errors, at the call: `ObjectNotFoundError` for a missing root.
    """
    root = tier.client.status(tier.paths.root)
    if root is None or not root.isdir:
        raise ObjectNotFoundError(f"the directory {tier.client.location} does not exist")
    found = walk(partial(_entries, tier), tier.paths.is_key, prefix, start_after)
    return (
        ListedObject(key=key, size_bytes=entry.size_bytes, modified_at=entry.modified_at)
        for key, entry in found
    )


def _entries(tier: HdfsTier, base: str) -> Iterator[Entry]:
    """What is in a directory, in the NameNode's own order, which takes bytes for signed."""
    with suppress(ObjectNotFoundError):
        for status in tier.client.listing((tier.paths.base + base).rstrip("/") or "/"):
            name = str(status.path).rpartition("/")[2]
            modified_at = utc_time(status.modification_time / 1000)
            yield Entry(name, status.isdir, status.length, modified_at)


CAPABILITIES = Capabilities(
    create_only=True,
    ordered_parts=True,
    user_metadata="sidecar",
    stale_uploads=True,
    range_bytes=8 << 20,
    ranges_ahead=8,
)

AT_ONCE = 8
"""How many ranges are read, or objects deleted, at once in one call."""


class HdfsDriver:
    """A tier in an HDFS file system.

    Args:
        url: `hdfs://host:port/path`, or `hdfs://nameservice/path` by the Hadoop configuration; `hdfs:///path` is in the
            configuration's default file system.
        root: the tier's directory, under the path of the URL; it is made by the first write.
        user: the user of simple authentication; else HADOOP_USER_NAME or the login. One process has one.
        config_dir: the directory of `core-site.xml` and `hdfs-site.xml`; else HADOOP_CONF_DIR or HADOOP_HOME.
        kerberos_principal: whose ticket is used; else that of the cache in KRB5CCNAME.
        kerberos_keytab: the file of the principal's keys.
        kerberos_cache: the ticket cache of the principal.
        replication: how many copies HDFS keeps of what is written; else the server's default.
        timeout_s: how long one request may take.
    """

    hook_spec_version = 1
    option_aliases: ClassVar[Mapping[str, str]] = ALIASES
    default_layers = ("retry",)
    pulsar_driver: str | None = None
    """Pulsar's name of the driver that it was opened as, if it has one."""

    def __init__(
        self,
        url: str,
        root: str = "",
        user: str = "",
        config_dir: str = "",
        kerberos_principal: str = "",
        kerberos_keytab: str = "",
        kerberos_cache: str = "",
        replication: int | str | None = None,
        timeout_s: float | str = 60.0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = checked_options(**given)
        self._paths = HdfsPaths(self._options.root)
        self._connections = Connections(self._options)
        self._runs = Runs()

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that an `hdfs:` URL stands for."""
        return options_from_url(url)

    def close(self) -> None:
        """Give back this process's connections; see `TierHooks`."""
        self._runs.close()
        self._connections.close()

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        return DriverDescription(
            name="hdfs",
            location=self._options.location,
            capabilities=CAPABILITIES,
            driver_metadata={
                "storageBasePath": self._options.root,
                "serviceEndpoint": self._options.file_system,
                **({} if self.pulsar_driver is None else {"managedLedgerOffloadDriver": self.pulsar_driver}),
            },
        )

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        metadata = checked_metadata(key, content_type, user_metadata)
        with placed(key=key):
            return begin(self._tier(key), key, metadata)

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag says where the block lies."""
        view = checked_block(upload, part_number, offset, data, CAPABILITIES)
        with placed(key=upload.key, block=part_number):
            tag = self._runs.write(self._tier(upload.key), upload, view)
        return BlockReceipt(part_number=part_number, offset=offset, length=view.nbytes, tag=tag)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        size_bytes = object_size(upload, receipts, CAPABILITIES)
        with placed(key=upload.key):
            tier = self._tier(upload.key)
            folder = folder_of(tier, upload)
            if folder is None:
                raise gone(upload)
            run = self._runs.joined(tier, upload, folder, receipts, size_bytes)
            return _object_stat(upload.key, *put_in_place(tier, upload, run, create_only))

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        with placed(key=upload.key):
            self._runs.forget(upload)
            return drop(self._tier(), upload)

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
        run = new_name()
        with placed(key=key):
            tier = self._tier(key)
            upload = begin(tier, key, metadata, {run: memoryview(data).cast("B")})
            try:
                return _object_stat(key, *put_in_place(tier, upload, run, create_only))
            except OffloadError:
                with suppress(OffloadError):
                    drop(tier, upload)
                raise

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> bytes:
        """See `TierHooks`."""
        return self.read_ranges([ByteRange(key=key, offset=offset, length=length)])[0]

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """See `TierHooks`."""
        ends: dict[str, int] = {}
        for wanted in ranges:
            check_range(wanted)
            ends[wanted.key] = max(ends.get(wanted.key, 0), wanted.end)
        tier = self._tier(*ends)
        opened = {}
        for key, end in ends.items():
            with placed(key=key):
                opened[key] = _opened(tier, key, end)
        for wanted in ranges:
            size_bytes = opened[wanted.key].file_length()
            if wanted.end > size_bytes:
                raise bad_range(wanted, size_bytes)
        with placed(key=ranges[0].key if len(ends) == 1 else None):
            return tier.client.read_ranges([(opened[w.key], w.offset, w.length) for w in ranges], AT_ONCE)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        with placed(key=key):
            return _object_stat(key, *object_and_metadata(self._tier(key), key))

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        return list_keys(self._tier(), prefix, start_after)

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        tier = self._tier(*keys)
        for _ in bounded_map(partial(_delete, tier), keys, at_once=AT_ONCE, name="hdfs-delete"):
            pass
        return len(keys)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        return uploads(self._tier(), prefix)

    def _tier(self, *keys: str) -> HdfsTier:
        """The tier as this process reaches it, once all that are given are keys."""
        for key in keys:
            self._paths.object(key)
        return HdfsTier(self._connections.get(), self._paths)


def _opened(tier: HdfsTier, key: str, end: int) -> Any:
    path = tier.paths.object(key)
    try:
        return tier.client.readers({path: end}, 1)[path]
    except (ObjectNotFoundError, InvalidKeyError) as error:  # or a part of the key is an object
        raise no_object(tier, key) from error


def _delete(tier: HdfsTier, key: str) -> None:
    with placed(key=key):
        delete_object(tier, key)


def _object_stat(key: str, status: Any, metadata: ObjectMetadata) -> ObjectStat:
    return metadata.stat(key, status.length, utc_time(status.modification_time / 1000))
