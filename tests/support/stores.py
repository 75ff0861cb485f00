"""Empty tiers of every store by its name, and HDFS by its REST interface, which the driver does not use."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from servers.process import http_answer

from offload_core.storage.tier import Tier, open_store
from pulsar_offload import TierReader, open_tier


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
        """The NameNode's status of a file or directory."""
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
        status, headers, answer = http_answer(self._netloc, method, target)
        if status == 307:  # to a DataNode
            there = urlsplit(headers["Location"])
            target = f"{there.path}?{there.query}"
            status, headers, answer = http_answer(there.netloc, method, target, body or b"")
        if status == 404:
            return None
        assert status in (200, 201), f"{method} {target}: {status} {answer!r}"
        return answer


# --- The five stores as tests open them: an empty tier of their own on a real server, by URL and options.


FAR_NAMES = ("s3", "gcs", "azure", "hdfs")
NAMES = ("local", *FAR_NAMES)
SERVERS = {"s3": "versitygw", "gcs": "fake_gcs", "azure": "azurite", "hdfs": "minihdfs"}
"""The fixture of each store's server."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """An empty tier: what a user types to open it.

    Attributes:
        endpoint: the server's `scheme://host:port` for a proxy; empty for a directory.
        options: the driver's options, all of them text.
    """

    name: str
    url: str
    endpoint: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self, **more: Any) -> Tier:
        """The tier, for single objects."""
        return open_store(self.url, **self.options, **more)

    def open_reader(self, **more: Any) -> TierReader:
        """The tier, to list and scan."""
        return open_tier(self.url, **self.options, **more)

    def through(self, proxy_url: str, **more: str) -> Store:
        """The same tier through a proxy before its endpoint, with more options."""
        there = proxy_url.rpartition("//")[2]
        here = self.endpoint.rpartition("//")[2]
        moved = {name: value.replace(here, there) for name, value in self.options.items()}
        return replace(self, url=self.url.replace(here, there), options=moved | more)

    def command_line(self) -> list[str]:
        """The arguments of the command `offload`."""
        options = [word for name, value in self.options.items() for word in ("-o", f"{name}={value}")]
        return [self.url, *options]

    def spark_options(self) -> dict[str, str]:
        """The options of the Spark source."""
        return {"path": self.url, **{f"storage.{name}": value for name, value in self.options.items()}}


def s3_options(server: Any) -> dict[str, str]:
    """The options of the driver `s3` for a `Versitygw`."""
    return {
        "endpoint_url": server.endpoint,
        "region": server.region,
        "access_key_id": server.root.access_key,
        "secret_access_key": server.root.secret_key,
    }


def new_store(name: str, server_of: Callable[[str], Any], folder: Path) -> Store:
    """An empty tier of the store `name`; `server_of` gives the running server of a fixture's name."""
    unique = f"tests-{os.getpid()}-{next(_numbers)}"
    if name == "local":
        return Store(name=name, url=str(folder / unique))
    server = server_of(SERVERS[name])
    if name == "s3":
        server.make_bucket(unique)
        return Store(
            name=name, url=f"s3://{unique}/tier", endpoint=server.endpoint, options=s3_options(server)
        )
    if name == "gcs":
        server.make_bucket(unique)
        options = {"endpoint_url": server.endpoint, "anonymous": "true"}
        return Store(name=name, url=f"gs://{unique}/tier", endpoint=server.endpoint, options=options)
    if name == "azure":
        server.make_container(unique)
        options = {"connection_string": server.connection_string}
        return Store(name=name, url=f"az://{unique}/tier", endpoint=server.endpoint, options=options)
    WebHdfs(server.endpoint, f"/{unique}/tier", server.superuser).operate("PUT", "", op="MKDIRS")
    options = {"user": server.superuser}
    return Store(name=name, url=f"{server.url}/{unique}/tier", endpoint=server.url, options=options)
