"""Ranges of objects, one or many, and small objects whole, read by obstore, a client in Rust.

obstore has the same credentials, endpoint and timeouts as botocore's client, which writes. What it cannot read
botocore's client reads, or gives the error in its own terms. So it is in a forked process: obstore has threads that a
fork does not copy, and in a child of a process that has used it every request would wait for ever.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import obstore.store  # now, and not by a thread's first read: a fork meanwhile would leave the module locked
from botocore.exceptions import ClientError

from offload_drivers.arguments import bad_range, check_range
from offload_drivers.object_keys import KeySpace
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.s3.connection import S3Connection
from offload_drivers.s3.errors import translated
from offload_drivers.s3.options import S3Options
from offload_hooks import ByteRange, ObjectStat, ReadableBuffer, WholeObject
from offload_hooks.bounded_map import bounded_map
from offload_hooks.json_text import whole_number

_AT_ONCE = 32
"""How many of many ranges are on their way at once, so that a far store's latency is paid once for many."""

_GLOBAL = "aws-global"
_CREDENTIALS_FOR = timedelta(minutes=5)
"""How long obstore may use credentials before it asks again: botocore renews them at least ten minutes ahead."""

_log = logging.getLogger(__name__)

_first_user: int | None = None
"""The process that used obstore before all others: this one, or one that it was forked from."""


class S3Reads:
    """Reads whole ranges or raises."""

    def __init__(self, options: S3Options, connection: S3Connection, keys: KeySpace) -> None:
        self._options = options
        self._at_once = min(options.max_connections, _AT_ONCE)
        self._connection = connection
        self._keys = keys
        self._stores: dict[int, Any] = {}
        # At the latest while Python is still whole: a store that is dropped as it ends may abort the process.
        weakref.finalize(self, _drop, self._stores)

    def one(self, wanted: ByteRange) -> ReadableBuffer:
        """The bytes of a range."""
        return self.many([wanted])[0]

    def many(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """The bytes of many ranges, in their order; the first error ends all."""
        for wanted in ranges:
            check_range(wanted)
            self._keys.name(wanted.key)
        if not ranges:
            return []
        with translated("read", self._options.bucket, ranges[0].key if len(ranges) == 1 else None):
            store = self._store()
            found: list[memoryview | None]
            if store is None or len(ranges) == 1:
                found = [None if store is None else self._by_obstore(store, each) for each in ranges]
            else:
                # Not by obstore's coroutines: one of its threads hands over their answers, and if Python ends
                # just then, as a short command does after its last range, the process is aborted.
                read = partial(self._by_obstore, store)
                found = list(bounded_map(read, ranges, at_once=self._at_once, name="s3-read"))
            calls = [
                partial(self._by_botocore, each)
                for each, data in zip(ranges, found, strict=True)
                if data is None
            ]
            rest = iter(self._connection.files.run_all(calls, self._at_once) if calls else ())
        return [next(rest) if data is None else data for data in found]

    def whole(self, key: str, most_bytes: int) -> WholeObject | None:
        """An object's bytes and stat by one request; None if obstore could not read it, or it has more bytes."""
        found = self._get(key)
        if found is None or found.meta["size"] > most_bytes:
            return None
        try:
            data = memoryview(found.bytes())
        except Exception as error:
            _not_by_obstore(error)
            return None
        stat = _stat_of(key, found)
        return WholeObject(stat=stat, data=data) if data.nbytes == stat.size_bytes else None

    def stat(self, key: str) -> ObjectStat | None:
        """An object's stat, but for its storage class; None if obstore could not look it up."""
        found = self._get(key, options={"head": True})
        return None if found is None else _stat_of(key, found)

    def close(self) -> None:
        """Give back this process's connections; a later use makes new ones."""
        _drop(self._stores)

    def _store(self) -> Any | None:
        """This process's store; None in a process that was forked from one that has used obstore."""
        global _first_user
        process = os.getpid()
        if _first_user is None:
            _first_user = process
        if _first_user != process:
            return None
        store = self._stores.get(process)
        if store is None:
            store = self._stores.setdefault(process, _make_store(self._options, self._connection))
        return store

    def _by_obstore(self, store: Any, wanted: ByteRange) -> memoryview | None:
        """Exactly the bytes of the range, or None."""
        name = self._keys.name(wanted.key)
        try:
            data = memoryview(obstore.get_range(store, name, start=wanted.offset, length=wanted.length))
        except Exception as error:
            _not_by_obstore(error)
            return None
        return data if data.nbytes == wanted.length else None

    def _get(self, key: str, **more: Any) -> Any | None:
        """The beginning of obstore's answer, None instead of any error."""
        name = self._keys.name(key)
        with translated("read", self._options.bucket, key):
            store = self._store()
        try:
            return None if store is None else obstore.get(store, name, **more)
        except Exception as error:
            _not_by_obstore(error)
            return None

    async def _by_botocore(self, wanted: ByteRange) -> bytes:
        # Translated here, not where the loop hands its errors over: of many ranges each has its own key.
        with translated("read", self._options.bucket, wanted.key):
            try:
                data, answer = await self._connection.read(
                    self._keys.name(wanted.key), wanted.offset, wanted.length
                )
            except ClientError as error:
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 416:
                    raise bad_range(wanted, _size_in(error.response)) from error
                raise
        if len(data) != wanted.length:
            raise bad_range(wanted, _size_of(answer.get("ContentRange", "")))
        return data


def _not_by_obstore(error: Exception) -> None:
    _log.info("obstore could not read (%s); botocore's client tries", type(error).__name__)


def _stat_of(key: str, found: Any) -> ObjectStat:
    meta, attributes = found.meta, found.attributes
    return ObjectStat(
        key=key,
        size_bytes=meta["size"],
        modified_at=meta["last_modified"],
        content_type=attributes.get("Content-Type") or ObjectMetadata().content_type,
        # Names of user metadata are in lower case, those of other attributes are not.
        user_metadata={name: value for name, value in attributes.items() if name == name.lower()},
        version=meta["e_tag"],
    )


def _make_store(options: S3Options, connection: S3Connection) -> Any:
    """An obstore store of the options' bucket; call it outside of the event loop.

    obstore reads environment variables, too; what could send a request elsewhere or sign it otherwise is set here.
    """
    meta = connection.files.run(connection.client).meta
    virtual = options.addressing_style == "virtual"
    client_options: dict[str, Any] = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=options.connect_timeout_s),
        "read_timeout": timedelta(seconds=options.read_timeout_s),
    }
    if options.proxy:
        client_options["proxy_url"] = options.proxy
    if options.ca_bundle:
        client_options["root_certificate"] = Path(options.ca_bundle).read_bytes()

    def credentials() -> dict[str, Any]:
        found = connection.files.run(connection.credentials)
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(timezone.utc) + _CREDENTIALS_FOR,
        }

    return obstore.store.S3Store(
        options.bucket,
        config={
            "region": "us-east-1" if meta.region_name == _GLOBAL else meta.region_name,
            "endpoint": _with_bucket(meta.endpoint_url, options.bucket) if virtual else meta.endpoint_url,
            "virtual_hosted_style_request": virtual,
            "skip_signature": options.anonymous,
            "request_payer": False,
        },
        client_options=client_options,
        retry_config={"max_retries": 0},
        credential_provider=None if options.anonymous else credentials,
    )


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _drop(stores: dict[int, Any]) -> None:
    stores.pop(os.getpid(), None)


def _size_in(refusal: Any) -> int | None:
    told = refusal.get("Error", {}).get("ActualObjectSize", "")
    if (size := whole_number(told)) is not None:
        return size
    headers = refusal.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return _size_of(headers.get("content-range", ""))


def _size_of(content_range: str) -> int | None:
    return whole_number(content_range.rpartition("/")[2])
