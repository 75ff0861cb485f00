"""One bucket by the JSON API: each method is one request, or many of a kind at once.

What the store refuses is raised as `RefusalError`, except where many things are asked for at once: the driver
translates it. See
https://cloud.google.com/storage/docs/json_api/v1/objects.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from offload_drivers.arguments import bad_range
from offload_drivers.filesystems import ProcessFilesystem
from offload_drivers.gcs.errors import RefusalError, translated
from offload_drivers.gcs.objects import LISTED, RESOURCE, Composition, GcsObject, crc32c_of, size_of, stored
from offload_drivers.object_keys import KeySpace
from offload_drivers.object_metadata import ObjectMetadata
from offload_hooks import ByteRange
from offload_hooks.errors import StoreError, StoreUnavailableError

MAX_SOURCES = 32
"""The most objects that one request composes."""

PAGE = 1000
"""The most objects that one answer lists."""

_READS_AT_ONCE = 32
_CHANGES_AT_ONCE = 32


class Bucket:
    """The objects of a bucket.

    Args:
        keys: what keys the names have, for errors.
        storage_class: of the objects that are uploaded; empty for the bucket's own.
    """

    def __init__(self, name: str, keys: KeySpace, storage_class: str, filesystem: ProcessFilesystem) -> None:
        self.name = name
        self._keys = keys
        self._storage_class = storage_class
        self._filesystem = filesystem

    def insert(
        self, name: str, data: memoryview, metadata: ObjectMetadata, *, create_only: bool = False
    ) -> GcsObject:
        """Store an object whole, in one request; the bytes are checked by their CRC32C, there and here."""
        crc32c = crc32c_of(data)
        resource: dict[str, object] = {
            "name": name,
            "contentType": metadata.content_type,
            "metadata": dict(metadata.user_metadata),
            "crc32c": crc32c,
        }
        if self._storage_class:
            resource["storageClass"] = self._storage_class
        boundary = uuid.uuid4().hex
        begin = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(resource)}\r\n"
        )
        begin += f"--{boundary}\r\nContent-Type: {metadata.content_type}\r\n\r\n"
        answer = self._filesystem.run(
            self._call,
            "POST",
            f"{self._filesystem.get()._location}/upload/storage/v1/b/{{}}/o",
            self.name,
            uploadType="multipart",
            fields=RESOURCE,
            ifGenerationMatch=_absent_if(create_only),
            headers={"Content-Type": f"multipart/related; boundary={boundary}"},
            data=[begin.encode(), data, f"\r\n--{boundary}--\r\n".encode()],
        )
        inserted = stored(answer)
        if (inserted.size_bytes, inserted.crc32c) != (data.nbytes, crc32c):
            raise StoreUnavailableError(
                "the store has other bytes than it was sent",
                key=self._keys.key(name),
                expected=f"{data.nbytes} bytes of CRC32C {crc32c}",
                found=f"{inserted.size_bytes} bytes of CRC32C {inserted.crc32c}",
            )
        return inserted

    def compose(self, compositions: Sequence[Composition]) -> list[GcsObject]:
        """Make objects of others, some at once; a source must still be what it was when it was looked up."""
        return self._filesystem.run_all(
            [partial(self._compose, each) for each in compositions], at_once=_CHANGES_AT_ONCE
        )

    def stat(self, name: str) -> GcsObject:
        """An object without its bytes."""
        return stored(self._filesystem.run(self._call, "GET", "b/{}/o/{}", self.name, name, fields=RESOURCE))

    def exists(self, name: str) -> bool:
        """Whether there is an object of this name."""
        try:
            self.stat(name)
        except RefusalError as refusal:
            if not refusal.is_of_object:
                raise
            return False
        return True

    def read(self, names: Sequence[str]) -> list[bytes | None]:
        """Small objects, whole; None for one that is not there."""
        return self._filesystem.run_all([partial(self._read, name) for name in names], _READS_AT_ONCE)

    def read_ranges(self, ranges: Sequence[tuple[str, ByteRange]]) -> list[memoryview]:
        """Ranges of objects, by the objects' names, concurrently; `RangeError` for one that an object lacks."""
        return self._filesystem.run_all(
            [partial(self._read_range, name, wanted) for name, wanted in ranges], _READS_AT_ONCE
        )

    def pages(self, prefix: str, start: str = "", skip: str = "") -> Iterator[list[GcsObject]]:
        """Objects whose names begin with `prefix`, from the name `start` on, page by page.

        What begins with `skip` is left out after the page that comes to it. The order is that of UTF-8 bytes.
        """
        token: object = None
        while True:
            answer = self._page(prefix, start, token)
            page = [stored(item) for item in answer.get("items", [])]
            yield page
            token = answer.get("nextPageToken")
            if token is None:
                return
            if skip and page and page[-1].name.startswith(skip):
                # The next name that does not begin so; `skip` ends with a slash, the next character is 0.
                start, token = skip[:-1] + chr(ord(skip[-1]) + 1), None

    def folder(self, prefix: str) -> Iterator[list[GcsObject]]:
        """As `pages`, without objects that have a slash behind the prefix."""
        token: object = None
        while True:
            answer = self._page(prefix, "", token, delimiter="/")
            yield [stored(item) for item in answer.get("items", [])]
            token = answer.get("nextPageToken")
            if token is None:
                return

    def delete(self, names: Sequence[str]) -> int:
        """Delete objects, some at once; the number of those that were there."""
        gone = 0
        for start in range(0, len(names), PAGE):
            calls = [partial(self._delete, name) for name in names[start : start + PAGE]]
            gone += sum(self._filesystem.run_all(calls, _CHANGES_AT_ONCE))
        return gone

    def _page(self, prefix: str, start: str, token: object, delimiter: str | None = None) -> Any:
        return self._filesystem.run(
            self._call,
            "GET",
            "b/{}/o",
            self.name,
            prefix=prefix or None,
            startOffset=start or None,
            pageToken=token,
            delimiter=delimiter,
            maxResults=PAGE,
            fields=f"nextPageToken,items({LISTED})",
        )

    async def _call(self, method: str, path: str, *args: str, **named: Any) -> Any:
        return await self._filesystem.get()._call(method, path, *args, json_out=True, **named)

    async def _compose(self, composition: Composition) -> GcsObject:
        answer = await self._call(
            "POST",
            "b/{}/o/{}/compose",
            self.name,
            composition.name,
            fields=RESOURCE,
            ifGenerationMatch=_absent_if(composition.create_only),
            json={
                "sourceObjects": [
                    {"name": source.name, "generation": source.generation} for source in composition.sources
                ],
                "destination": {
                    "contentType": composition.metadata.content_type,
                    "metadata": dict(composition.metadata.user_metadata),
                },
            },
        )
        return stored(answer)

    async def _read(self, name: str) -> bytes | None:
        try:
            return bytes((await self._filesystem.get().read_media(self.name, name, {}))[1])
        except RefusalError as refusal:
            if not refusal.is_of_object:
                raise
            return None

    async def _read_range(self, name: str, wanted: ByteRange) -> memoryview:
        headers = {"Range": f"bytes={wanted.offset}-{wanted.end - 1}"}
        with translated("read", self.name, wanted.key):
            try:
                content_range, data = await self._filesystem.get().read_media(self.name, name, headers)
            except RefusalError as refusal:
                if refusal.status != 416:
                    raise
                raise bad_range(wanted, size_of(refusal.content_range)) from refusal
        if not content_range.startswith(f"bytes {wanted.offset}-") or len(data) > wanted.length:
            raise StoreError(
                "the store sent another range than it was asked for",
                key=wanted.key,
                expected=f"{wanted.length} bytes from byte {wanted.offset}",
                found=f"{len(data)} bytes, {content_range!r}",
            )
        if len(data) < wanted.length:
            raise bad_range(wanted, size_of(content_range))
        return memoryview(data)

    async def _delete(self, name: str) -> bool:
        with translated("delete", self.name, self._keys.key(name)):
            try:
                await self._filesystem.get()._call("DELETE", "b/{}/o/{}", self.name, name)
            except RefusalError as refusal:
                if not refusal.is_of_object:
                    raise
                return False
        return True


def _absent_if(create_only: bool) -> str | None:
    """The precondition that there is no object; none for one that may be replaced."""
    return "0" if create_only else None
