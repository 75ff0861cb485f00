"""A tier in a bucket of Google Cloud Storage for tests of the driver `gcs`, and the same bucket by REST requests."""

from __future__ import annotations

import http.client
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from servers.fake_gcs import FakeGcs

from offload_drivers.gcs import GcsDriver

PREFIX = "some/tier"

_numbers = itertools.count()


def new_bucket(server: FakeGcs) -> str:
    """An empty bucket of the test's own."""
    return server.make_bucket(f"gcs-tests-{os.getpid()}-{next(_numbers)}")


@contextmanager
def opened(**options: Any) -> Iterator[GcsDriver]:
    """A driver that is closed in the end."""
    driver = GcsDriver(**options)
    try:
        yield driver
    finally:
        driver.close()


class Rest:
    """The tier in a bucket, by requests to the JSON API; each on a connection of its own, from any thread."""

    def __init__(self, server: FakeGcs, bucket: str) -> None:
        self.bucket = bucket
        self._address = (server.host, server.port)

    def put(
        self, key: str, data: bytes, user_metadata: Mapping[str, str] = {}, content_type: str = "a/b"
    ) -> dict[str, Any]:
        """Store an object; what the store tells of it."""
        resource = {"name": f"{PREFIX}/{key}", "contentType": content_type, "metadata": dict(user_metadata)}
        head = f"--x\r\nContent-Type: application/json\r\n\r\n{json.dumps(resource)}\r\n"
        body = f"{head}--x\r\nContent-Type: {content_type}\r\n\r\n".encode() + data + b"\r\n--x--\r\n"
        headers = {"Content-Type": "multipart/related; boundary=x"}
        path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=multipart"
        status, answer = self._ask("POST", path, body, headers)
        assert status == 200, answer
        return json.loads(answer)

    def get(self, key: str) -> bytes | None:
        """An object's bytes, if there is one."""
        status, body = self._ask("GET", f"{self._path(key)}?alt=media")
        assert status in (200, 404), body
        return body if status == 200 else None

    def resource(self, key: str) -> dict[str, Any]:
        """What the store tells of an object."""
        status, body = self._ask("GET", self._path(key))
        assert status == 200, body
        return json.loads(body)

    def delete(self, key: str) -> None:
        """Remove an object."""
        status, body = self._ask("DELETE", self._path(key))
        assert status in (200, 204), body

    def keys(self) -> set[str]:
        """All names in the bucket, without the prefix."""
        return {found["name"].removeprefix(f"{PREFIX}/") for found in self.listed()}

    def staged(self) -> dict[str, int]:
        """The sizes of what is staged of uploads, by their names in the driver's own folder."""
        folder = f"{PREFIX}/.offload-uploads/"
        return {
            found["name"].removeprefix(folder): int(found["size"])
            for found in self.listed()
            if found["name"].startswith(folder)
        }

    def listed(self) -> list[dict[str, Any]]:
        """What the store tells of all objects."""
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            status, body = self._ask("GET", f"/storage/v1/b/{self.bucket}/o?{urlencode(token)}")
            assert status == 200, body
            page = json.loads(body)
            found += page.get("items", [])
            if not page.get("nextPageToken"):
                return found
            token = {"pageToken": page["nextPageToken"]}

    def _path(self, key: str) -> str:
        return f"/storage/v1/b/{self.bucket}/o/{quote(f'{PREFIX}/{key}', safe='')}"

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
