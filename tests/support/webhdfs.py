"""HDFS by its REST interface: another client than the one that the driver is made of."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import quote, urlencode, urlsplit


class WebHdfs:
    """Files and directories under one root; safe to use from many threads.

    Args:
        endpoint: the NameNode's URL, without a path.
        root: an absolute path.
        user: who asks.
    """

    def __init__(self, endpoint: str, root: str, user: str) -> None:
        self._netloc = urlsplit(endpoint).netloc
        self._root = root.rstrip("/")
        self._user = user

    def put(self, name: str, data: bytes) -> None:
        """Write a file, with the directories that it needs."""
        self._ask("PUT", name, op="CREATE", overwrite="true", body=data)

    def get(self, name: str) -> bytes | None:
        """A file's bytes; None if there is none."""
        return self._ask("GET", name, op="OPEN")

    def status(self, name: str) -> dict[str, Any] | None:
        """What the NameNode knows of a file or directory."""
        found = self._ask("GET", name, op="GETFILESTATUS")
        return None if found is None else json.loads(found)["FileStatus"]

    def files(self, name: str = "") -> set[str]:
        """The names of all files under a directory."""
        found = self._ask("GET", name, op="LISTSTATUS")
        names: set[str] = set()
        for each in json.loads(found)["FileStatuses"]["FileStatus"] if found else ():
            path = f"{name}/{each['pathSuffix']}".lstrip("/")
            names |= self.files(path) if each["type"] == "DIRECTORY" else {path}
        return names

    def operate(self, method: str, name: str, **query: str) -> dict[str, Any]:
        """Any other operation (`op=...`); its answer."""
        return json.loads(self._ask(method, name, **query) or b"{}")

    def _ask(self, method: str, name: str, body: bytes | None = None, **query: str) -> bytes | None:
        path = quote(f"/webhdfs/v1{self._root}/{name}".rstrip("/"))
        target = f"{path}?{urlencode({'user.name': self._user, **query})}"
        status, headers, answer = _request(self._netloc, method, target, None)
        if status == 307:  # to a DataNode
            there = urlsplit(headers["Location"])
            status, headers, answer = _request(
                there.netloc, method, f"{there.path}?{there.query}", body or b""
            )
        if status == 404:
            return None
        assert status in (200, 201), f"{method} {target}: {status} {answer!r}"
        return answer


def _request(
    netloc: str, method: str, target: str, body: bytes | None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(netloc, timeout=60)
    try:
        connection.request(method, target, body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()
