"""A ZooKeeper server, from the jars that come with Pulsar's broker: plain, by TLS, and with a SASL user."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient
from network.fronts import make_certificate

from servers import install
from servers.broker import QUICK_START
from servers.process import free_port
from servers.server import Server


class ZooKeeper(Server):
    """A ZooKeeper of one server.

    Fields besides those of all servers: `secure_port` (TLS), `certificate` that it shows there, and the SASL user
    `user` with its `password`.
    """

    name = "zookeeper"
    part = "broker"  # whose jars it is made of
    client = "kazoo"
    extra = "zookeeper"
    user = "reader"
    password = "geheim"
    secure_port: int
    certificate: Path

    def start(self, folder: Path) -> ZooKeeper:
        self.secure_port = free_port()
        self.certificate, key = make_certificate(folder)
        (folder / "both.pem").write_bytes(key.read_bytes() + self.certificate.read_bytes())
        return super().start(folder)

    def command(self) -> list[str]:
        java, installed = install.broker()
        settings = {
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": self.host,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.folder / "both.pem",
            "ssl.clientAuth": "none",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
            "tickTime": 1000,
            "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        }
        conf, jaas = self.folder / "zoo.cfg", self.folder / "jaas.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
        jaas.write_text(f'Server {{ {module} user_{self.user}="{self.password}"; }};\n')
        return [
            *(str(java), "-Xmx256m", *QUICK_START),
            f"-Djava.security.auth.login.config={jaas}",
            "-Dzookeeper.forceSync=no",  # sessions end while a busy disk syncs; no test takes the power away
            f"-Dlog4j2.configurationFile={Path(__file__).with_name('pulsar') / 'log4j2.properties'}",
            *("-cp", f"{installed}/lib/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(conf)),
        ]

    def is_ready(self) -> bool:
        """Return whether it answers `imok`."""
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    @property
    def endpoint(self) -> str:
        """The URL of our metadata store."""
        return f"zk://{self.host}:{self.port}"

    @contextmanager
    def connected(self) -> Iterator[KazooClient]:
        """A client that may do anything."""
        client = KazooClient(f"{self.host}:{self.port}")
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def make_root(self, path: str) -> str:
        """An empty node for a cluster; its URL, in the form that Pulsar and our metadata store take."""
        with self.connected() as client:
            client.create(path)
        return f"zk:{self.host}:{self.port}{path}"
