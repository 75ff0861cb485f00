"""The driver `gcs`: a tier in a bucket of Google Cloud Storage, under a prefix, over gcsfs.

An object is an object of the bucket, with its user metadata as custom metadata. Blocks are objects of their own
until a commit has the store compose them (module `uploads`). Create-only is the store's own precondition, that an
object's generation is 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import TypeVar

from offload_drivers.arguments import check_range, checked_block, object_size
from offload_drivers.credential_calls import CredentialOption
from offload_drivers.filesystems import ProcessFilesystem
from offload_drivers.gcs.bucket import Bucket
from offload_drivers.gcs.errors import RefusalError, translated
from offload_drivers.gcs.filesystem import OneTryFilesystem
from offload_drivers.gcs.objects import Composition, GcsObject, crc32c_of
from offload_drivers.gcs.options import ALIASES, POINTLESS, SCHEME, checked_options, options_from_url
from offload_drivers.gcs.uploads import GcsUploads
from offload_drivers.object_keys import MAX_NAME_BYTES, KeySpace
from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
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
from offload_hooks.errors import (
    InvalidKeyError,
    OffloadError,
    OptionError,
    StoreUnavailableError,
    UploadError,
)

# What Google Cloud Storage keeps of an object besides its bytes, and what it cannot keep.
#
# Custom metadata is text of any script (JSON API), but no more than 8 KiB of names and values together
# (https://cloud.google.com/storage/quotas). Control characters do not survive as HTTP headers, nor do names that are
# empty. All of these are refused with `OptionError`.


MAX_USER_METADATA_BYTES = 8 << 10


def checked_gcs_metadata(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """A writer's metadata, if the store keeps it as it is."""
    metadata = checked_metadata(key, content_type, user_metadata)
    if not content_type or not content_type.isascii() or _has_control(content_type):
        raise OptionError("the content type must be printable ASCII text", key=key, found=repr(content_type))
    for name, value in metadata.user_metadata.items():
        if not name or name != name.strip() or _has_control(name) or _has_control(value):
            raise OptionError(
                f"user metadata of this store has no empty or blank names and no control characters: {name!r}",
                key=key,
            )
    size = sum(len(text.encode()) for pair in metadata.user_metadata.items() for text in pair)
    if size > MAX_USER_METADATA_BYTES:
        raise OptionError(
            "user metadata is too large for this store",
            key=key,
            expected=f"{MAX_USER_METADATA_BYTES:,} bytes or fewer in all names and values",
            found=f"{size:,} bytes",
        )
    return metadata


def _has_control(text: str) -> bool:
    return any(character < " " or character == "\x7f" for character in text)


# Changing requests of this process of which it is not known whether the store carried them out.
#
# Google's store has no ids of requests. A create-only write whose answer was lost, made again, finds an object: its
# own one perhaps. Whoever noted here that the outcome was not known may then compare what is there with what was sent.
# Without such a note nothing is compared: an object that somebody else made, were it the same, is somebody else's.


_REMEMBERED = 1000


class UnsureWrites:
    """Which writes ended without an answer; from any thread."""

    def __init__(self) -> None:
        self._writes: dict[Hashable, None] = {}

    @contextmanager
    def noting(self, write: Hashable) -> Iterator[None]:
        """Note the write when it ends with `StoreUnavailableError`; forget it when it ends otherwise."""
        try:
            yield
        except StoreUnavailableError:
            self._writes[write] = None
            for oldest in list(self._writes)[:-_REMEMBERED]:
                self._writes.pop(oldest, None)
            raise
        except BaseException:
            self._writes.pop(write, None)
            raise
        self._writes.pop(write, None)

    def __contains__(self, write: Hashable) -> bool:
        return write in self._writes


_T = TypeVar("_T")


def list_keys(bucket: Bucket, keys: KeySpace, prefix: str, start_after: str) -> Iterator[ListedObject]:
    """List the objects whose key begins with `prefix` and comes after `start_after`."""
    begin, staging = keys.prefix_name(prefix), keys.staging_name()
    if not _may_begin_a_name(begin) or begin.startswith(staging):
        return
    after = start_after.encode("utf-8", "surrogatepass")
    # The store's own offset includes what is equal to it.
    start = _longest_name(keys.prefix_name(start_after)) if start_after else ""
    skip = staging if staging.startswith(begin) else ""
    pages = bucket.pages(begin, start=start, skip=skip)
    for page in _translated(pages, "list", bucket):
        for found in page:
            key = keys.key(found.name)
            if key is not None and key.encode() > after:
                yield ListedObject(
                    key=key,
                    size_bytes=found.size_bytes,
                    modified_at=found.modified_at,
                    storage_class=found.storage_class,
                    version=found.generation or None,
                )


def list_stale(bucket: Bucket, uploads: GcsUploads, prefix: str) -> Iterator[StaleUpload]:
    """List the uploads of keys that begin with `prefix`."""
    return _translated(uploads.find(prefix), "list uploads", bucket)


def begun(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, the first of them asked for now, so that a missing bucket is an error of the call."""
    return chain(list(islice(items, 1)), items)


def _translated(items: Iterator[_T], what: str, bucket: Bucket) -> Iterator[_T]:
    while True:
        with translated(what, bucket.name):
            found = list(islice(items, 1))
        if not found:
            return
        yield found[0]


def _may_begin_a_name(text: str) -> bool:
    try:
        return len(text.encode()) <= MAX_NAME_BYTES
    except UnicodeEncodeError:
        return False


def _longest_name(text: str) -> str:
    """The longest beginning of a text that can begin a name: such as UTF-8 can hold, and no longer than a name."""
    beginning = text.encode("utf-8", "surrogatepass")[:MAX_NAME_BYTES]
    while True:
        try:
            return beginning.decode()
        except UnicodeDecodeError as error:
            beginning = beginning[: error.start]


MAX_OBJECT_BYTES = 5 << 40
_NOT_A_NAME = ".well-known/acme-challenge/"

CAPABILITIES = Capabilities(
    create_only=True,
    stale_uploads=True,
    max_block_bytes=MAX_OBJECT_BYTES,
    max_blocks=10_000,
    range_bytes=8 << 20,
    ranges_ahead=8,
    lists_from_any_key=True,
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
        credentials: a callable, or `module:function`, that returns `token` and `expires_at`; it is called again before
            the token expires (`credential_calls`).
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
    pointless_options = POINTLESS
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
        credentials: CredentialOption = "",
        anonymous: bool | str = False,
        impersonate_service_account: str = "",
        user_project: str = "",
        storage_class: str = "",
        ca_bundle: str = "",
        proxy: str = "",
        connect_timeout_s: float | str = 10,
        read_timeout_s: float | str = 60,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = checked_options(**given)
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

    def _committed(self, upload: Upload, final: Composition) -> GcsObject:
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

    def _left_behind(self, name: str, refusal: RefusalError, write: Hashable) -> GcsObject | None:
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
