"""The driver `azure`: a tier in a container of Azure's blob storage, below a prefix.

An object is a block blob at its key under the prefix, of exactly the blocks that were written, with its content type
and user metadata in the store's own headers; a blob by anybody else is an object, too. A commit lists the blocks, and
the blob is there with all that belongs to it. Create-only is Azure's `If-None-Match: *`. An upload is a small record
(module `uploads`). A commit drops all uncommitted blocks of its blob, those of other uploads as well, and so ends them.

Not to be confused with the package `azure`, the SDK: this package is `offload_drivers.azure`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from azure.storage.blob import BlobProperties

from offload_drivers.arguments import bad_range, check_range, checked_block, object_size
from offload_drivers.azure.blocks import block_id, block_ids
from offload_drivers.azure.container import Container
from offload_drivers.azure.filesystem import MAX_PUT_BYTES
from offload_drivers.azure.keys import BlobKeySpace
from offload_drivers.azure.listing import list_blobs
from offload_drivers.azure.options import ALIASES, POINTLESS, PUBLIC_CLOUD, checked_options, options_from_url
from offload_drivers.azure.uploads import Uploads
from offload_drivers.credential_calls import CredentialOption
from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
from offload_drivers.upload_records import new_upload
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
from offload_hooks.errors import ObjectNotFoundError, OptionError, StoreError
from offload_hooks.whole_objects import check_size

# User metadata and content types as Azure's blobs keep them: headers, refused if they would not come back as given.
#
# Azure takes names that are identifiers of C# (ASCII letters, digits and `_`, no digit first), case-preserving; values
# are those of HTTP headers, which lose white space at their ends and are ASCII; all names and values together may have
# 8 KiB. An empty value is a header that clients and proxies may drop, so it is refused as well.


MAX_METADATA_BYTES = 8 << 10
MAX_CONTENT_TYPE_BYTES = 1 << 10
FOLDER_MARK = "hdi_isfolder"
"""The metadata of blobs that stand for a folder: accounts with a hierarchical namespace, and Hadoop, make them."""

_DEFAULT_TYPE = "application/octet-stream"
_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z")


def storable(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """A writer's metadata, names in lower case; `OptionError` for what Azure would refuse or change."""
    metadata = checked_metadata(key, content_type, user_metadata)
    for name, value in metadata.user_metadata.items():
        if not _NAME.match(name) or name == FOLDER_MARK:
            raise OptionError(
                f"Azure takes no user metadata of the name {name!r}",
                key=key,
                expected="ASCII letters, digits and _, no digit first",
            )
        if not _VALUE.match(value):
            raise OptionError(
                f"Azure does not keep the value of the user metadata {name!r} as it is",
                key=key,
                expected="printable ASCII, not empty, without white space at its ends",
            )
    size_bytes = sum(len(name) + len(value) for name, value in metadata.user_metadata.items())
    if size_bytes > MAX_METADATA_BYTES:
        raise OptionError(
            "Azure does not take this much user metadata",
            key=key,
            expected=f"{MAX_METADATA_BYTES:,} bytes or less",
            found=f"{size_bytes:,} bytes",
        )
    if not _VALUE.match(content_type) or len(content_type) > MAX_CONTENT_TYPE_BYTES:
        raise OptionError(
            "Azure does not keep this content type as it is",
            key=key,
            expected=f"printable ASCII, 1 to {MAX_CONTENT_TYPE_BYTES:,} characters",
        )
    return metadata


def is_folder(metadata: Mapping[str, str] | None) -> bool:
    """True if a blob of this metadata stands for a folder."""
    return any(name.lower() == FOLDER_MARK and value == "true" for name, value in (metadata or {}).items())


def version_of(blob: BlobProperties) -> str | None:
    """A blob's ETag, which listings have without its quotation marks."""
    return blob.etag.strip('"') if blob.etag else None


def stat_of(key: str, blob: BlobProperties) -> ObjectStat:
    """A blob's properties as `stat` answers them; `ObjectNotFoundError` if it stands for a folder."""
    if is_folder(blob.metadata):
        raise ObjectNotFoundError("a folder is no object", key=key)
    return ObjectStat(
        key=key,
        size_bytes=blob.size,
        modified_at=blob.last_modified,
        content_type=blob.content_settings.content_type or _DEFAULT_TYPE,
        user_metadata={name.lower(): value for name, value in (blob.metadata or {}).items()},
        storage_class=blob.blob_tier,
        version=version_of(blob),
    )


CAPABILITIES = Capabilities(
    create_only=True,
    exclusive_uploads=True,
    user_metadata="native",
    stale_uploads=True,
    max_block_bytes=4000 << 20,
    max_blocks=50_000,
    range_bytes=8 << 20,
    ranges_ahead=8,
)


class AzureDriver:
    """A tier in a container.

    Args:
        container: the container's name.
        prefix: what all keys are under.
        account_name: the storage account.
        account_key: a key of the account.
        sas_token: a shared access signature of the account or container.
        connection_string: account and credentials in one, as Azure's portal shows them.
        tenant_id: the tenant of a service principal.
        client_id: the service principal.
        client_secret: its secret.
        managed_identity_client_id: a user-assigned managed identity.
        credentials: a callable, or `module:function`, that returns `token` and `expires_at`; it is called again before
            the token expires (`credential_calls`).
        anonymous: send no credentials, for containers with public access.
        endpoint_url: the URL of the blob service, where it is not that of the account in the public cloud.
        ca_bundle: a file or folder of certificates to trust instead of the system's.
        proxy: the URL of an HTTP proxy, instead of the environment's.
        connect_timeout_s: the longest wait for a connection.
        read_timeout_s: the longest wait for the store's next bytes, or for it to take ours.
    """

    hook_spec_version = 1
    option_aliases = ALIASES
    pointless_options = POINTLESS
    default_layers = ("retry",)

    def __init__(
        self,
        container: str,
        prefix: str = "",
        account_name: str = "",
        account_key: str = "",
        sas_token: str = "",
        connection_string: str = "",
        tenant_id: str = "",
        client_id: str = "",
        client_secret: str = "",
        managed_identity_client_id: str = "",
        credentials: CredentialOption = "",
        anonymous: bool | str = False,
        endpoint_url: str = "",
        ca_bundle: str = "",
        proxy: str = "",
        connect_timeout_s: float | str = 20.0,
        read_timeout_s: float | str = 60.0,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = checked_options(**given)
        self._keys = BlobKeySpace(prefix=self._options.prefix)
        self._container = Container(self._options)
        self._uploads = Uploads(self._container, self._keys)

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that an `az:` or `abfs:` URL stands for."""
        return options_from_url(url)

    def close(self) -> None:
        """Give back this process's connections; a later call makes new ones."""
        self._container.close()

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        options = self._options
        account_url = options.account_name and f"https://{options.account_name}.{PUBLIC_CLOUD}"
        return DriverDescription(
            name="azure",
            location=f"az://{options.container}/{options.prefix}".rstrip("/"),
            capabilities=CAPABILITIES,
            driver_metadata={
                "bucket": options.container,
                "region": "",
                "serviceEndpoint": options.endpoint_url or account_url,
                "managedLedgerOffloadDriver": "AZURE_BLOB",
            },
        )

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        self._keys.name(key)
        return self._uploads.begin(key, storable(key, content_type, user_metadata))

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag is the block's id."""
        view = checked_block(upload, part_number, offset, data, CAPABILITIES)
        block, name = block_id(upload, part_number, view.nbytes), self._keys.name(upload.key)
        self._container.call("write a block", upload.key, self._container.stage, name, block, view)
        return BlockReceipt(part_number=part_number, offset=offset, length=view.nbytes, tag=block)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        size_bytes = object_size(upload, receipts, CAPABILITIES)
        blocks = block_ids(upload, receipts)
        modified_at, metadata = self._uploads.commit(upload, blocks, create_only)
        return metadata.stat(upload.key, size_bytes, modified_at)

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`; the blocks cannot be seen, and Azure drops them after a week."""
        return self._uploads.drop(upload)

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
        name, metadata = self._keys.name(key), storable(key, content_type, user_metadata)
        view = memoryview(data).cast("B")
        if view.nbytes > MAX_PUT_BYTES:
            raise StoreError(
                f"Azure stores no more than {MAX_PUT_BYTES:,} bytes by one request",
                key=key,
                found=f"{view.nbytes:,} bytes",
                hint="Write it as a data object, in blocks.",
            )
        write = partial(self._container.put, name, view, metadata, create_only=False)
        if create_only:
            block = block_id(new_upload(key), 1, view.nbytes)
            write = partial(self._container.create, name, view, metadata, block)
        modified_at = self._container.call("write an object", key, write)
        return metadata.stat(key, view.nbytes, modified_at)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> bytes:
        """See `TierHooks`."""
        wanted = ByteRange(key=key, offset=offset, length=length)
        return self._container.call("read", key, self._checked_read(wanted))

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""
        reads = [(wanted.key, self._checked_read(wanted)) for wanted in ranges]
        return list(self._container.call_all("read", reads)) if reads else []

    @hookimpl
    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `TierHooks`."""
        name = self._keys.name(key)
        data, blob = self._container.call("read", key, self._container.whole, name, most_bytes)
        stat = stat_of(key, blob)
        check_size(key, stat.size_bytes, most_bytes)
        return WholeObject(stat=stat, data=data)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        name = self._keys.name(key)
        return stat_of(key, self._container.call("stat", key, self._container.properties, name))

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        run = partial(self._container.call, "list objects", None)
        first, after = self._keys.prefix_name(prefix), self._keys.prefix_name(start_after)
        for blob in list_blobs(self._container.listed(), run, first, after):
            key = self._keys.key(blob.name)
            if key is not None and not is_folder(blob.metadata):
                yield ListedObject(
                    key=key,
                    size_bytes=blob.size,
                    modified_at=blob.last_modified,
                    storage_class=blob.blob_tier,
                    version=version_of(blob),
                )

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`; many at once, each by a request of its own."""
        names = {key: self._keys.name(key) for key in keys}
        deletes = [(key, partial(self._container.delete, name)) for key, name in names.items()]
        if deletes:
            self._container.call_all("delete", deletes)
        return len(keys)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        return self._uploads.listed(prefix)

    def _checked_read(self, wanted: ByteRange) -> Callable[[], Coroutine[Any, Any, bytes]]:
        """A function that reads a range, after a check that an object may have it."""
        name = self._keys.name(wanted.key)
        check_range(wanted)

        async def read() -> bytes:
            data, size_bytes = await self._container.read(name, wanted.offset, wanted.length)
            if len(data) != wanted.length:
                raise bad_range(wanted, size_bytes)
            return data

        return read
