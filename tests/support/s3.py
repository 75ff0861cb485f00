"""An S3 tier on a real server for tests of the driver `s3`: its options, and the same bucket through boto3."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from network.fronts import Answer, Request
from servers.versitygw import Versitygw
from stores import s3_options

from offload_drivers.s3 import S3Driver
from offload_hooks import BlockReceipt, ByteRange, Upload

PREFIX = "some/tier"

_numbers = itertools.count()


def new_bucket(server: Versitygw) -> str:
    """An empty bucket of the test's own."""
    return server.make_bucket(f"s3-tests-{os.getpid()}-{next(_numbers)}")


def options(server: Versitygw, **more: object) -> dict[str, Any]:
    """The options of a driver for the server."""
    return s3_options(server) | more


def opened(**options: Any) -> AbstractContextManager[S3Driver]:
    """A driver that is closed in the end."""
    return closing(S3Driver(**options))


class Boto:
    """The tier in a bucket, by boto3."""

    def __init__(self, server: Versitygw, bucket: str) -> None:
        self.bucket = bucket
        self.client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name=server.region,
            aws_access_key_id=server.root.access_key,
            aws_secret_access_key=server.root.secret_key,
            config=Config(max_pool_connections=32),
        )

    def put(
        self, key: str, data: bytes, user_metadata: Mapping[str, str] = {}, content_type: str = "a/b"
    ) -> None:
        """Store an object."""
        properties = {"Metadata": dict(user_metadata), "ContentType": content_type}
        self.client.put_object(**self._at(key), Body=data, **properties)

    def get(self, key: str) -> bytes | None:
        """An object's bytes, if there is one."""
        try:
            with self.client.get_object(**self._at(key))["Body"] as body:
                return body.read()
        except self.client.exceptions.NoSuchKey:
            return None

    def head(self, key: str, **parameters: str) -> dict[str, Any]:
        """The answer to HEAD."""
        return self.client.head_object(**self._at(key), **parameters)

    def keys(self) -> set[str]:
        """All names in the bucket, without the prefix."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        names = [found["Key"] for page in pages for found in page.get("Contents", ())]
        return {name.removeprefix(f"{PREFIX}/") for name in names}

    def uploads(self) -> list[str]:
        """The names of all uploads that are under way."""
        answer = self.client.list_multipart_uploads(Bucket=self.bucket)
        return [found["Key"] for found in answer.get("Uploads", ())]

    def parts(self, upload: Upload) -> list[dict[str, Any]]:
        """The parts of an upload that is under way."""
        place = self._at(upload.key) | {"UploadId": upload.upload_id}
        return self.client.list_parts(**place).get("Parts", [])

    def part_sizes(self, key: str) -> list[int]:
        """The sizes of the parts that an object was uploaded in."""
        first = self.client.head_object(**self._at(key), PartNumber=1)
        counts = range(1, first.get("PartsCount", 1) + 1)
        heads = (self.client.head_object(**self._at(key), PartNumber=number) for number in counts)
        return [head["ContentLength"] for head in heads]

    def close(self) -> None:
        """Give back the connections."""
        self.client.close()

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": f"{PREFIX}/{key}"}


def every_hook(driver: Any) -> dict[str, Callable[[], object]]:
    """One call of each hook that sends a request; those that answer lazily are made to."""
    upload = Upload(key="k", upload_id="74c6850a-3b1f-4f7a-9d3d-5a5f0d0c9b11")
    receipts = [BlockReceipt(part_number=1, offset=0, length=1, tag="x")]
    return {
        "begin": lambda: driver.begin_data("k", "a/b", {}),
        "block": lambda: driver.write_block(upload, 1, 0, b"x"),
        "commit": lambda: driver.commit_data(upload, receipts, True),
        "abort": lambda: driver.abort_data(upload),
        "index": lambda: driver.write_index("k", b"x", "a/b", {}, True),
        "read": lambda: driver.read_range("k", 0, 1),
        "ranges": lambda: driver.read_ranges([ByteRange(key="k", offset=0, length=1)] * 3),
        "whole": lambda: driver.read_object("k", 9),
        "stat": lambda: driver.stat("k"),
        "list": lambda: list(driver.list_objects("", "")),
        "delete": lambda: driver.delete(["k"]),
        "bulk delete": lambda: driver.delete(["k", "l"]),
        "uploads": lambda: list(driver.list_uploads("")),
    }


HOOKS = list(every_hook(None))


# --- For fronts before S3 servers: answers that refuse as S3 does, and requests that are signed anew.


_NOT_SIGNED_ANEW = {"authorization", "x-amz-security-token", "x-amz-date", "expect", "connection"}


def refusal(status: int, code: str, message: str = "", **headers: str) -> Answer:
    """An answer of S3 that refuses."""
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=body, headers={"Content-Type": "application/xml", **named})


def signed_anew(request: Request, server: Versitygw, **parameters: object) -> Request:
    """The request with more parameters, signed by the server's root user."""
    named = {name.replace("_", "-"): value for name, value in parameters.items()}
    more = ("&" if "?" in request.target else "?") + urlencode(named) if named else ""
    headers = {name: value for name, value in request.headers.items() if name not in _NOT_SIGNED_ANEW}
    url = f"http://{headers['host']}{request.target}{more}"
    again = AWSRequest(request.method, url, headers, data=request.body)
    credentials = Credentials(server.root.access_key, server.root.secret_key)
    S3SigV4Auth(credentials, "s3", server.region).add_auth(again)
    signed = {name.lower(): value for name, value in again.headers.items()}
    return replace(request, target=request.target + more, headers=signed)
