"""Listings of a tier in a bucket: the store's own, page by page, in the order of the names' UTF-8 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TypeVar

from offload_drivers.gcs.bucket import Bucket
from offload_drivers.gcs.errors import translated
from offload_drivers.gcs.uploads import GcsUploads
from offload_drivers.object_keys import MAX_NAME_BYTES, KeySpace
from offload_hooks import ListedObject, StaleUpload

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
