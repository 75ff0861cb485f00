"""The driver `gcs`: a tier in a bucket of Google Cloud Storage, under a prefix, over gcsfs.

An object is an object of the bucket, with its user metadata as custom metadata. Blocks are objects of their own
until a commit has the store compose them (module `uploads`). Create-only is the store's own precondition, that an
object's generation is 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress

from offload_drivers.arguments import check_range, checked_block, object_size
from offload_drivers.filesystems import ProcessFilesystem
from offload_drivers.gcs.bucket import Bucket
from offload_drivers.gcs.errors import RefusalError, translated
from offload_drivers.gcs.filesystem import OneTryFilesystem
from offload_drivers.gcs.listing import begun, list_keys, list_stale
from offload_drivers.gcs.metadata import checked_gcs_metadata
from offload_drivers.gcs.objects import Composition, StoredObject, crc32c_of
from offload_drivers.gcs.options import ALIASES, SCHEME, checked_options, options_from_url
from offload_drivers.gcs.unsure import UnsureWrites
from offload_drivers.gcs.uploads import GcsUploads
from offload_drivers.object_keys import KeySpace
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
from offload_hooks.errors import InvalidKeyError, OffloadError, UploadError

MAX_OBJECT_BYTES = 5 << 40
_NOT_A_NAME = ".well-known/acme-challenge/"

CAPABILITIES = Capabilities(
    create_only=True,
    stale_uploads=True,
    max_block_bytes=MAX_OBJECT_BYTES,
    max_blocks=10_000,
    range_bytes=8 << 20,
    ranges_ahead=8,
)


class GcsDriver:
    """A tier in a bucket of Google Cloud Storage.

    Args:
        bucket: the bucket's name; it must exist.
        prefix: what the names of all objects of the tier begin with.
        region: the bucket's location, told to Pulsar's brokers; nothing else uses it.
        endpoint_url: the server's `scheme://host:port`; by default Google's.
        service_account_file: the path of a service account's key in JSON.
        service_account_json: such a key itself.
        token: an access token, used as it is until it expires.
        anonymous: ask without any credentials.
        impersonate_service_account: the e-mail address of the service account to act as.
        user_project: the project that pays for requests to a bucket whose requesters pay.
        storage_class: of new objects; by default the bucket's.
        ca_bundle: a file or directory of certificates to trust instead of the system's.
        proxy: the URL of an HTTP proxy; by default that of the environment.
        connect_timeout_s: how long a connection may take.
        read_timeout_s: how long the store may neither take nor send a byte.
    """

    hook_spec_version = 1
    option_aliases = ALIASES
    default_layers = ("retry",)

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        region: str = "",
        endpoint_url: str = "",
        service_account_file: str = "",
        service_account_json: str = "",
        token: str = "",
        anonymous: bool | str = False,
        impersonate_service_account: str = "",
        user_project: str = "",
        storage_class: str = "",
        ca_bundle: str = "",
        proxy: str = "",
        connect_timeout_s: float | str = 10,
        read_timeout_s: float | str = 60,
    ) -> None:
        self._options = checked_options(
            bucket=bucket,
            prefix=prefix,
            region=region,
            endpoint_url=endpoint_url,
            service_account_file=service_account_file,
            service_account_json=service_account_json,
            token=token,
            anonymous=anonymous,
            impersonate_service_account=impersonate_service_account,
            user_project=user_project,
            storage_class=storage_class,
            ca_bundle=ca_bundle,
            proxy=proxy,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
        )
        self._filesystem = ProcessFilesystem(lambda: OneTryFilesystem(self._options), OneTryFilesystem.shut)
        self._keys = KeySpace(prefix=self._options.prefix)
        self._bucket = Bucket(self._options.bucket, self._keys, self._options.storage_class, self._filesystem)
        self._uploads = GcsUploads(self._bucket, self._keys)
        self._unsure = UnsureWrites()

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that a `gs:` URL stands for."""
        return options_from_url(url)

    def close(self) -> None:
        """Give back this process's connections; a later use makes new ones."""
        self._filesystem.close()

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        return DriverDescription(
            name="gcs",
            location=f"{SCHEME}://{self._options.bucket}/{self._options.prefix}".rstrip("/"),
            capabilities=CAPABILITIES,
            driver_metadata={
                "managedLedgerOffloadDriver": "GOOGLE_CLOUD_STORAGE",
                "bucket": self._options.bucket,
                "region": self._options.region,
                "serviceEndpoint": self._options.endpoint_url,
            },
        )

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        metadata = checked_gcs_metadata(key, content_type, user_metadata)
        self._name(key)
        with translated("begin an object", self._bucket.name, key, creates=True):
            return self._uploads.begin(key, metadata)

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag is the block's CRC32C."""
        view = checked_block(upload, part_number, offset, data, CAPABILITIES)
        _check_size(upload, offset + view.nbytes)
        with translated("write a block", self._bucket.name, upload.key, creates=True):
            return self._uploads.write(upload, part_number, offset, view)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        _check_size(upload, object_size(upload, receipts, CAPABILITIES))
        name = self._name(upload.key)
        with translated("commit an object", self._bucket.name, upload.key):
            metadata = self._uploads.metadata(upload)
            parts = self._uploads.parts(upload, receipts)
            final = Composition(name=name, sources=parts, metadata=metadata, create_only=create_only)
            committed = self._committed(upload, final)
        # The object is in place. What cannot be removed now is listed as a stale upload.
        with suppress(OffloadError), translated("remove an upload", self._bucket.name, upload.key):
            self._uploads.drop(upload)
        return committed.as_stat(upload.key)

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        with translated("abort an upload", self._bucket.name, upload.key):
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
        metadata = checked_gcs_metadata(key, content_type, user_metadata)
        name, view = self._name(key), memoryview(data).cast("B")
        crc32c = crc32c_of(view)
        write = (key, view.nbytes, crc32c, content_type, tuple(sorted(metadata.user_metadata.items())))
        with self._unsure.noting(write), translated("write an object", self._bucket.name, key, creates=True):
            try:
                written = self._bucket.insert(name, view, metadata, create_only=create_only)
            except RefusalError as refusal:
                found = self._left_behind(name, refusal, write)
                if found is None or not found.holds(view.nbytes, crc32c, metadata):
                    raise
                written = found
        return written.as_stat(key)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `TierHooks`."""
        return self.read_ranges([ByteRange(key=key, offset=offset, length=length)])[0]

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `TierHooks`."""
        wanted = []
        for each in ranges:
            check_range(each)
            wanted.append((self._name(each.key), each))
        with translated("read", self._bucket.name):
            return self._bucket.read_ranges(wanted)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        name = self._name(key)
        with translated("stat", self._bucket.name, key):
            return self._bucket.stat(name).as_stat(key)

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        return begun(list_keys(self._bucket, self._keys, prefix, start_after))

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        names = [self._name(key) for key in keys]
        with translated("delete", self._bucket.name):
            self._bucket.delete(names)
        return len(keys)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        return begun(list_stale(self._bucket, self._uploads, prefix))

    def _name(self, key: str) -> str:
        name = self._keys.name(key)
        if name.startswith(_NOT_A_NAME):
            raise InvalidKeyError("the store reserves names that begin so", key=key)
        return name

    def _committed(self, upload: Upload, final: Composition) -> StoredObject:
        """Compose the object, or find that an earlier try of this commit did, whose answer was lost."""
        with self._unsure.noting(upload), translated("commit an object", self._bucket.name, upload.key):
            try:
                return self._uploads.compose(upload, [final])[0]
            except RefusalError as refusal:
                found = self._left_behind(final.name, refusal, upload)
                if found is None:
                    raise
                whole = self._uploads.whole(upload, final.sources)
                if not found.holds(whole.size_bytes, whole.crc32c, final.metadata):
                    raise
                return found

    def _left_behind(self, name: str, refusal: RefusalError, write: Hashable) -> StoredObject | None:
        """The object that kept a create-only write out, if an earlier try of it ended without an answer."""
        if refusal.status != 412 or write not in self._unsure:
            return None
        try:
            return self._bucket.stat(name)
        except RefusalError as gone:
            if not gone.is_of_object:
                raise
            return None


def _check_size(upload: Upload, size_bytes: int) -> None:
    if size_bytes > MAX_OBJECT_BYTES:
        raise UploadError(
            "the store takes no object this large",
            key=upload.key,
            expected=f"{MAX_OBJECT_BYTES:,} bytes or fewer",
            found=f"{size_bytes:,} bytes",
        )
