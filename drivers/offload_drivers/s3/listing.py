"""What is in the tier's bucket, page by page: objects, and uploads that were neither committed nor aborted.

S3 lists in the order of the keys' UTF-8 bytes, which is the order that the hooks ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC
from typing import Any

from offload_drivers.object_keys import KeySpace
from offload_hooks import ListedObject, StaleUpload, Upload

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
                    modified_at=found["LastModified"].astimezone(UTC),
                    storage_class=found.get("StorageClass"),
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
                    started_at=found["Initiated"].astimezone(UTC),
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
