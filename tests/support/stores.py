"""The five stores as tests open them: an empty tier of their own on a real server, by URL and options."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webhdfs import WebHdfs

from offload_core.tier import Tier, open_store
from pulsar_offload import TierReader, open_tier

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

    def behind(self, proxy_url: str, **more: str) -> Store:
        """The same tier through a proxy before its endpoint, with more options."""
        there = proxy_url.rpartition("//")[2]
        here = self.endpoint.rpartition("//")[2]
        moved = {name: value.replace(here, there) for name, value in self.options.items()}
        return replace(self, url=self.url.replace(here, there), options=moved | more)

    def command_line(self) -> list[str]:
        """The arguments of the command `offload`."""
        return [
            self.url,
            *(word for name, value in self.options.items() for word in ("-o", f"{name}={value}")),
        ]

    def spark_options(self) -> dict[str, str]:
        """The options of the Spark source."""
        return {"path": self.url, **{f"storage.{name}": value for name, value in self.options.items()}}


def new_store(name: str, server_of: Callable[[str], Any], folder: Path) -> Store:
    """An empty tier of the store `name`; `server_of` gives the running server of a fixture's name."""
    unique = f"tests-{os.getpid()}-{next(_numbers)}"
    if name == "local":
        return Store(name=name, url=str(folder / unique))
    server = server_of(SERVERS[name])
    if name == "s3":
        server.make_bucket(unique)
        return Store(
            name=name,
            url=f"s3://{unique}/tier",
            endpoint=server.endpoint,
            options={
                "endpoint_url": server.endpoint,
                "region": server.region,
                "access_key_id": server.root.access_key,
                "secret_access_key": server.root.secret_key,
            },
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
