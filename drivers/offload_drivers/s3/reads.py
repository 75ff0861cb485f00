"""Ranges of objects, one or many: by s3fs, or by obstore where the options say so and it can."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from offload_drivers.arguments import bad_range, check_range
from offload_drivers.object_keys import KeySpace
from offload_drivers.s3.connection import S3Connection
from offload_drivers.s3.errors import translated
from offload_drivers.s3.obstore import make_store
from offload_drivers.s3.obstore_reads import ObstoreReads
from offload_drivers.s3.options import S3Options
from offload_hooks import ByteRange, ReadableBuffer
from offload_hooks.json_text import whole_number

_AT_ONCE = 32
"""How many of many ranges are on their way at once, so that a far store's latency is paid once for many."""


class S3Reads:
    """Reads whole ranges or raises."""

    def __init__(self, options: S3Options, connection: S3Connection, keys: KeySpace) -> None:
        self._bucket = options.bucket
        self._at_once = min(options.max_connections, _AT_ONCE)
        self._connection = connection
        self._keys = keys
        self._obstore: ObstoreReads | None = None
        if options.client == "obstore":
            self._obstore = ObstoreReads(partial(make_store, options, connection))

    def one(self, wanted: ByteRange) -> ReadableBuffer:
        """The bytes of a range."""
        return self.many([wanted])[0]

    def many(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """The bytes of many ranges, in their order; the first error ends all."""
        names = [self._name(wanted) for wanted in ranges]
        if not ranges:
            return []
        found: Sequence[ReadableBuffer | None] = [None] * len(ranges)
        with translated("read", self._bucket, ranges[0].key if len(ranges) == 1 else None):
            if self._obstore is not None:
                places = [(name, each.offset, each.length) for name, each in zip(names, ranges, strict=True)]
                found = self._obstore.read_many(places, self._at_once)
            calls = [
                partial(self._by_s3fs, name, each)
                for name, each, data in zip(names, ranges, found, strict=True)
                if data is None
            ]
            rest = iter(self._connection.files.run_all(calls, self._at_once) if calls else ())
        return [next(rest) if data is None else data for data in found]

    def close(self) -> None:
        """Give back this process's connections."""
        if self._obstore is not None:
            self._obstore.close()

    def _name(self, wanted: ByteRange) -> str:
        check_range(wanted)
        return self._keys.name(wanted.key)

    async def _by_s3fs(self, name: str, wanted: ByteRange) -> bytes:
        # Translated here, not where the loop hands its errors over: of many ranges each has its own key.
        with translated("read", self._bucket, wanted.key):
            try:
                data, answer = await self._connection.read(name, wanted.offset, wanted.length)
            except ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 416:
                    raise bad_range(wanted, _size_in(error.response)) from error
                raise
        if len(data) != wanted.length:
            raise bad_range(wanted, _size_of(answer.get("ContentRange", "")))
        return data


def _size_in(refusal: Any) -> int | None:
    told = refusal.get("Error", {}).get("ActualObjectSize", "")
    if (size := whole_number(told)) is not None:
        return size
    headers = refusal.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return _size_of(headers.get("content-range", ""))


def _size_of(content_range: str) -> int | None:
    return whole_number(content_range.rpartition("/")[2])
