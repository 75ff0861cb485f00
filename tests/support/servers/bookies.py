"""Bookies of their own, from the jars that come with Pulsar's broker, registered in a ZooKeeper."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from servers import install
from servers.broker import OPENED, QUICK_START
from servers.server import Server
from servers.zookeeper import ZooKeeper

_LAYOUT = "2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


def make_cluster(zookeeper: ZooKeeper) -> str:
    """Make an empty cluster, as `bookkeeper shell initnewcluster` does; the path of all its ledgers in ZooKeeper."""
    root = f"/bookkeeper-{uuid.uuid4().hex[:8]}"
    with zookeeper.connected() as client:
        client.create(f"{root}/available/readonly", makepath=True)
        client.create(f"{root}/INSTANCEID", str(uuid.uuid4()).encode())
        client.create(f"{root}/LAYOUT", _LAYOUT.encode())
    return root


class Bookie(Server):
    """One bookie of a cluster.

    Args:
        cluster: of `make_cluster`.
        bookie_id: another one than its address.
        java_options: more options of `java`; a bookie that is to be measured should have none.
        settings: more settings, by their names in `bookkeeper.conf`.
        properties: more system properties.
    """

    name = "bookie"
    part = "broker"  # whose jars it is made of
    client = "kazoo"
    extra = "zookeeper"

    def __init__(
        self,
        zookeeper: ZooKeeper,
        cluster: str,
        *,
        bookie_id: str | None = None,
        java_options: Sequence[str] = QUICK_START,
        settings: Mapping[str, object] = {},
        properties: Mapping[str, object] = {},
    ) -> None:
        super().__init__()
        self._zookeeper = zookeeper
        self._cluster = cluster
        self._bookie_id = bookie_id
        self._java_options = java_options
        self._more = dict(settings)
        self._properties = dict(properties)

    @property
    def bookie_id(self) -> str:
        """Its name in the cluster."""
        return self._bookie_id or f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"{self.host}:{self.port}"

    def command(self) -> list[str]:
        java, installed = install.broker()
        settings = {
            "metadataServiceUri": f"zk+hierarchical://{self._zookeeper.host}:{self._zookeeper.port}{self._cluster}",
            "bookiePort": self.port,
            "advertisedAddress": self.host,
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "allowEphemeralPorts": "true",
            "journalDirectories": self.folder / "journal",
            "ledgerDirectories": self.folder / "ledgers",
            "indexDirectories": self.folder / "index",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "dbStorage_writeCacheMaxSizeMb": 64,
            "dbStorage_readAheadCacheMaxSizeMb": 64,
            "dbStorage_rocksDB_blockCacheSize": 8 << 20,
            "journalSyncData": "false",
            "journalPreAllocSizeMB": 1,
            "nettyMaxFrameSizeBytes": 5_253_120,
            "numReadWorkerThreads": 2,
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.98,
            "autoRecoveryDaemonEnabled": "false",
            "httpServerEnabled": "false",
            "enableStatistics": "false",
            "zkTimeout": 2000,
            **({"bookieId": self._bookie_id} if self._bookie_id else {}),
            **self._more,
        }
        conf = self.folder / "bookkeeper.conf"
        self.folder.mkdir(parents=True, exist_ok=True)
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        properties = {
            "java.io.tmpdir": self.folder,
            "log4j2.configurationFile": Path(__file__).with_name("pulsar") / "log4j2.properties",
            **self._properties,
        }
        return [
            *(str(java), "-Xmx256m", "-XX:MaxDirectMemorySize=512m", *self._java_options),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-cp", f"{installed}/lib/*", "org.apache.bookkeeper.server.Main", "--conf", str(conf)),
        ]

    def is_ready(self) -> bool:
        """Return whether it listens and is registered; after a kill, the old registration stays for some seconds."""
        try:
            socket.create_connection((self.host, self.port), timeout=5).close()
        except OSError:
            return False
        with self._zookeeper.connected() as client:
            available = f"{self._cluster}/available"
            places = (f"{available}/{self.bookie_id}", f"{available}/readonly/{self.bookie_id}")
            return any(client.exists(place) is not None for place in places)
