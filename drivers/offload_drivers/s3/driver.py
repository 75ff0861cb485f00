"""The driver `s3`: a tier in a bucket of Amazon S3, or of any service that speaks its protocol.

A data object is a multipart upload whose parts are exactly the blocks; an index is one PUT. What must not replace an
object (create only) is one request with the store's own condition, and no request is made a second time here: the
library's retries are off (`credentials`), the HTTP client's own one cannot happen (`body`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timezone
from typing import Any

from offload_drivers.arguments import checked_block, object_size
from offload_drivers.credential_calls import CredentialOption
from offload_drivers.object_keys import KeySpace
from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
from offload_drivers.s3.connection import S3Connection
from offload_drivers.s3.errors import refusal, translated
from offload_drivers.s3.options import ALIASES, POINTLESS, checked_options, options_from_url
from offload_drivers.s3.reads import S3Reads
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
from offload_hooks.errors import OptionError, UploadError
from offload_hooks.whole_objects import read_by_stat_and_range

_MOST_KEYS = 1000
"""Of one request: Amazon S3 API Reference, DeleteObjects."""

_ACTION = "delete"


def delete_objects(connection: S3Connection, bucket: str, keys: Mapping[str, str]) -> None:
    """Delete objects by their names in the bucket (with their keys, for errors); what is not there counts as gone."""
    names = list(keys)
    if len(names) == 1:
        with translated(_ACTION, bucket, keys[names[0]]):
            connection.call("delete_object", Key=names[0])
        return
    for start in range(0, len(names), _MOST_KEYS):
        wanted = [{"Key": name} for name in names[start : start + _MOST_KEYS]]
        with translated(_ACTION, bucket):
            answer = connection.call("delete_objects", Delete={"Objects": wanted, "Quiet": True})
        for fault in answer.get("Errors", ()):
            code, message = fault.get("Code", ""), fault.get("Message", "")
            if code != "NoSuchKey":
                raise refusal(_ACTION, bucket, keys.get(fault.get("Key", "")), code, message)


# User metadata and content types as S3 keeps them, in headers: what would come back changed is an `OptionError`.
#
# Names are tokens of HTTP, values printable ASCII without a space at either end, all of them together no more than
# 2 KB: Amazon S3 User Guide, "Working with object metadata". A value like `=?…?=` is taken for an encoded one
# (RFC 2047) and decoded, so it is refused, too. An empty content type would be replaced by another one.


MAX_METADATA_BYTES = 2048

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+\Z")
_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?\Z")
_ENCODED = re.compile(r"=\?.*\?=")


def s3_metadata(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """Take a writer's metadata, if S3 can keep it exactly."""
    metadata = checked_metadata(key, content_type, user_metadata)
    if not content_type or not _VALUE.match(content_type):
        raise OptionError(
            "the store keeps no content type like this", key=key, found=repr(content_type[:100])
        )
    for name, value in metadata.user_metadata.items():
        if not _NAME.match(name):
            raise OptionError(
                "the store keeps no user metadata of this name", key=key, found=repr(name[:100])
            )
        if not _VALUE.match(value) or _ENCODED.search(value):
            raise OptionError(
                f"the store cannot keep the user metadata {name!r} exactly",
                key=key,
                expected="printable ASCII, without a space at either end",
            )
    size_bytes = sum(len(name) + len(value) for name, value in metadata.user_metadata.items())
    if size_bytes > MAX_METADATA_BYTES:
        raise OptionError(
            "the user metadata is larger than the store takes",
            key=key,
            expected=f"{MAX_METADATA_BYTES} bytes or less",
            found=f"{size_bytes} bytes",
        )
    return metadata


def object_stat(key: str, head: Mapping[str, Any]) -> ObjectStat:
    """The stat in the answer to a HEAD request."""
    return ObjectStat(
        key=key,
        size_bytes=head["ContentLength"],
        modified_at=head["LastModified"].astimezone(timezone.utc),
        content_type=head.get("ContentType") or ObjectMetadata().content_type,
        user_metadata={name.lower(): value for name, value in head.get("Metadata", {}).items()},
        storage_class=head.get("StorageClass", "STANDARD"),  # S3 says any but this one
        version=head.get("ETag"),
    )


# Listings of the tier's bucket, page by page: objects, and uploads that were neither committed nor aborted.
#
# S3 lists in the order of the keys' UTF-8 bytes, which is the order that the hooks ask for.


Call = Callable[..., dict[str, Any]]
"""Makes one request: a method's name, its parameters."""


def list_objects(call: Call, keys: KeySpace, prefix: str, start_after: str) -> Iterator[ListedObject]:
    """The objects whose key begins with `prefix` and comes after `start_after`; a page is asked for when needed."""
    if not _is_text(prefix):  # no key begins with it
        return
    after = _bytes(start_after)
    place = {"StartAfter": keys.prefix_name(_text_before(start_after))} if start_after else {}
    more: dict[str, Any] = {}
    while True:
        page = call("list_objects_v2", Prefix=keys.prefix_name(prefix), **place, **more)
        for found in page.get("Contents", ()):
            key = keys.key(found["Key"])
            if key is not None and key.encode() > after:
                yield ListedObject(
                    key=key,
                    size_bytes=found["Size"],
                    modified_at=found["LastModified"].astimezone(timezone.utc),
                    storage_class=found.get("StorageClass"),
                    version=found.get("ETag"),
                )
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}


def list_uploads(call: Call, keys: KeySpace, prefix: str) -> Iterator[StaleUpload]:
    """The uploads whose key begins with `prefix`."""
    if not _is_text(prefix):
        return
    more: dict[str, Any] = {}
    while True:
        page = call("list_multipart_uploads", Prefix=keys.prefix_name(prefix), **more)
        for found in page.get("Uploads", ()):
            key = keys.key(found["Key"])
            if key is not None:
                yield StaleUpload(
                    upload=Upload(key=key, upload_id=found["UploadId"]),
                    started_at=found["Initiated"].astimezone(timezone.utc),
                )
        if not page.get("IsTruncated"):
            return
        more = {"KeyMarker": page["NextKeyMarker"]}
        if "NextUploadIdMarker" in page:  # some services go on by keys alone
            more["UploadIdMarker"] = page["NextUploadIdMarker"]


def _is_text(text: str) -> bool:
    return _text_before(text) == text


def _text_before(text: str) -> str:
    """The text up to what UTF-8 cannot hold (half a surrogate pair), or to a control character, which XML cannot."""
    for place, character in enumerate(text):
        if character < " " or "\ud800" <= character <= "\udfff":
            return text[:place]
    return text


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


CAPABILITIES = Capabilities(
    create_only=True,
    user_metadata="native",
    stale_uploads=True,
    min_block_bytes=5 << 20,
    max_block_bytes=5 << 30,
    max_blocks=10_000,
    range_bytes=8 << 20,
    ranges_ahead=8,
    lists_from_any_key=True,
)
"""Amazon S3 User Guide, "Amazon S3 multipart upload limits"."""


class S3Driver:
    """A tier in a bucket.

    Args:
        bucket: the bucket's name, or the ARN of an access point.
        prefix: what the names of all the tier's objects begin with, as folders.
        region: the bucket's region; else the environment's or the profile's.
        endpoint_url: the service's URL, if it is not Amazon's.
        profile: the profile of the AWS configuration files to take credentials and settings from.
        access_key_id, secret_access_key, session_token: credentials; without them botocore's own chain finds some.
        credentials: a callable, or `module:function`, that returns `access_key_id`, `secret_access_key`, `token` and
            `expires_at`; it is called again before they expire (`credential_calls`).
        role_arn: a role to assume by STS with these credentials.
        role_session_name: the name of that session.
        external_id: what the role's owner wants to be told.
        sts_endpoint_url: the URL of STS, if it is not Amazon's.
        anonymous: send requests without a signature.
        ca_bundle: a file with the certificates to trust.
        proxy: the URL of a proxy for all requests.
        addressing_style: `path` or `virtual` (the bucket in the host's name); `auto` leaves it to botocore.
        connect_timeout_s: how long a connection may take.
        read_timeout_s: how long nothing may come, or be taken, in a request.
        max_connections: the most connections of a process.
        checksum: what the store is to check and keep of what is written: `crc32`, or `none` for one that cannot.
        payload_signing: whether signatures cover what is written: `always`, `never`; `auto`: unless it goes by https
            and has a checksum.
        server_side_encryption, kms_key_id, storage_class: S3's properties of the objects that are written.
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
        profile: str = "",
        access_key_id: str = "",
        secret_access_key: str = "",
        session_token: str = "",
        credentials: CredentialOption = "",
        role_arn: str = "",
        role_session_name: str = "",
        external_id: str = "",
        sts_endpoint_url: str = "",
        anonymous: bool | str = False,
        ca_bundle: str = "",
        proxy: str = "",
        addressing_style: str = "auto",
        connect_timeout_s: float | str = 10.0,
        read_timeout_s: float | str = 60.0,
        max_connections: int | str = 64,
        checksum: str = "crc32",
        payload_signing: str = "auto",
        server_side_encryption: str = "",
        kms_key_id: str = "",
        storage_class: str = "",
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self"}
        self._options = checked_options(**given)
        self._bucket = self._options.bucket
        self._keys = KeySpace(prefix=self._options.prefix)
        self._connection = S3Connection(self._options)
        self._reads = S3Reads(self._options, self._connection, self._keys)

    @classmethod
    def options_from_url(cls, url: str) -> dict[str, object]:
        """The options that an `s3:` URL stands for."""
        return options_from_url(url)

    def close(self) -> None:
        """Give back this process's connections; the driver can be used on, and then makes new ones."""
        self._reads.close()
        self._connection.close()

    @hookimpl
    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        options = self._options
        return DriverDescription(
            name="s3",
            location=f"s3://{self._bucket}/{options.prefix}",
            capabilities=CAPABILITIES,
            driver_metadata={
                "managedLedgerOffloadDriver": "S3" if options.endpoint_url else "AWS_S3",
                "bucket": self._bucket,
                "region": options.region,
                "serviceEndpoint": options.endpoint_url,
            },
        )

    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""
        name = self._keys.name(key)
        properties = self._properties(key, content_type, user_metadata)
        with translated("begin an object", self._bucket, key):
            begun = self._connection.call(
                "create_multipart_upload", Key=name, **properties, **self._algorithm()
            )
        return Upload(key=key, upload_id=begun["UploadId"])

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; the receipt's tag is the part's ETag and, after a blank, the checksum that the store has."""
        view = checked_block(upload, part_number, offset, data, CAPABILITIES)
        place = self._place(upload)
        with translated("write a block", self._bucket, upload.key):
            part = self._connection.send("upload_part", view, PartNumber=part_number, **place)
        tag = f"{part['ETag']} {part.get('ChecksumCRC32', '')}".rstrip()
        return BlockReceipt(part_number=part_number, offset=offset, length=view.nbytes, tag=tag)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool) -> ObjectStat:
        """See `TierHooks`."""
        object_size(upload, receipts, CAPABILITIES)
        place = self._place(upload)
        with translated("commit an object", self._bucket, upload.key):
            # An upload that was committed already may be committed again: S3 remembers for a while, and says that
            # it succeeded. So ask first whether it is there.
            self._connection.call("list_parts", MaxParts=1, **place)
            self._connection.call(
                "complete_multipart_upload",
                MultipartUpload={"Parts": [_part(receipt) for receipt in receipts]},
                **place,
                **_condition(create_only),
            )
        return self._written(upload.key)

    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        """See `TierHooks`."""
        try:
            place = self._place(upload)
            with translated("abort an upload", self._bucket, upload.key):
                self._connection.call("abort_multipart_upload", **place)
        except UploadError:
            return False
        return True

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
        name = self._keys.name(key)
        properties = self._properties(key, content_type, user_metadata)
        with translated("write an object", self._bucket, key):
            self._connection.send("put_object", data, Key=name, **properties, **_condition(create_only))
        return self._written(key)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        return self._reads.one(ByteRange(key=key, offset=offset, length=length))

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""
        return self._reads.many(ranges)

    @hookimpl
    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `TierHooks`."""
        return self._reads.whole(key, most_bytes) or read_by_stat_and_range(self, key, most_bytes)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        name = self._keys.name(key)
        with translated("stat", self._bucket, key):
            return object_stat(key, self._connection.call("head_object", Key=name))

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""
        return list_objects(self._list_page, self._keys, prefix, start_after)

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        """See `TierHooks`."""
        delete_objects(self._connection, self._bucket, {self._keys.name(key): key for key in keys})
        return len(keys)

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
        return list_uploads(self._list_page, self._keys, prefix)

    def _written(self, key: str) -> ObjectStat:
        """The stat of what was just written, without its storage class if that is cheaper."""
        return self._reads.stat(key) or self.stat(key)

    def _list_page(self, method: str, **parameters: Any) -> dict[str, Any]:
        with translated("list", self._bucket):
            return self._connection.call(method, **parameters)

    def _place(self, upload: Upload) -> dict[str, Any]:
        """The parameters that name an upload. Without an id the request would be one on the object of the key."""
        if not upload.upload_id:
            raise UploadError("this is no upload of this tier", key=upload.key)
        return {"Key": self._keys.name(upload.key), "UploadId": upload.upload_id}

    def _algorithm(self) -> dict[str, str]:
        return {"ChecksumAlgorithm": "CRC32"} if self._options.checksum == "crc32" else {}

    def _properties(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> dict[str, Any]:
        """The parameters of an object that is written."""
        metadata = s3_metadata(key, content_type, user_metadata)
        encryption = {
            "ServerSideEncryption": self._options.server_side_encryption,
            "SSEKMSKeyId": self._options.kms_key_id,
            "StorageClass": self._options.storage_class,
        }
        return {
            "ContentType": metadata.content_type,
            "Metadata": dict(metadata.user_metadata),
            **{name: value for name, value in encryption.items() if value},
        }


def _part(receipt: BlockReceipt) -> dict[str, Any]:
    """A part as a commit names it; of an upload with checksums S3 wants each part's."""
    etag, _, checksum = receipt.tag.partition(" ")
    return {
        "PartNumber": receipt.part_number,
        "ETag": etag,
        **({"ChecksumCRC32": checksum} if checksum else {}),
    }


def _condition(create_only: bool) -> dict[str, str]:
    return {"IfNoneMatch": "*"} if create_only else {}
