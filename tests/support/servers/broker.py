"""A Pulsar broker with its bookie and its metadata in one JVM, and Pulsar's two offloaders.

It has no offload driver of its own: each namespace names one in its policies (`s3_policies`, `filesystem_policies`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from servers import install
from servers.process import free_port, http_status
from servers.server import Server
from servers.versitygw import Versitygw

DEFAULT_BLOCK_BYTES = 64 << 20
"""The size of blocks, as by Pulsar's default."""

QUICK_START = ("-XX:TieredStopAtLevel=1",)
"""Without Java's optimising compiler a start takes half the CPU time."""

OPENED = [
    *(f"java.base/{package}" for package in ("java.io", "java.lang", "java.nio", "java.util.zip")),
    *(f"java.base/jdk.internal.{package}" for package in ("misc", "platform")),
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
]
"""The packages that Netty, RocksDB's statistics and the metrics need open."""

_ENTRY_METADATA = ",".join(
    f"org.apache.pulsar.common.intercept.Append{what}MetadataInterceptor"
    for what in ("BrokerTimestamp", "Index")
)
"""The interceptors that make broker entry metadata."""

_HADOOP = {
    "fs.defaultFS": "",
    "io.file.buffer.size": "4096",
    "io.seqfile.compress.blocksize": "1000000",
    "io.seqfile.compression.type": "BLOCK",
    "io.map.index.interval": "128",
}
"""The filesystem offloader's settings, as Pulsar's documentation has them."""


class Broker(Server):
    """A broker that keeps all messages. A topic's ledger is full with `max_entries_per_ledger` entries.

    Fields besides those of all servers: `service_url` for clients, `bookie_endpoint` of BookKeeper's own REST;
    `endpoint` is that of the admin REST.

    Args:
        s3: the one S3 service that namespaces can offload to.
        java_options: more options of `java`; a broker that is to be measured should have none.
        transactions: whether it takes transactions, for which it keeps system topics.
        topic_policies: whether topics have policies of their own, which are in system topics.
        entry_metadata: whether it puts a timestamp and an index before each entry, and shows them to clients.
        metadata_url: where its metadata is, such as `zk:host:port/root`; in a folder of its own if not given.
        version: of Pulsar.
    """

    name = "broker"
    part = "broker"
    client = "pulsar"
    cluster = "standalone"
    service_port: int
    bookie_port: int
    bookie_web_port: int

    def __init__(
        self,
        s3: Versitygw,
        *,
        max_entries_per_ledger: int = 20,
        java_options: Sequence[str] = QUICK_START,
        transactions: bool = False,
        topic_policies: bool = False,
        entry_metadata: bool = False,
        metadata_url: str | None = None,
        version: str = install.PULSAR,
    ) -> None:
        super().__init__()
        self._s3 = s3
        self._java_options = java_options
        self._max_entries_per_ledger = max_entries_per_ledger
        self._transactions = str(transactions).lower()
        self._topic_policies = str(topic_policies).lower()
        self._system_topics = str(transactions or topic_policies).lower()
        self._entry_metadata = entry_metadata
        self.metadata_url = metadata_url
        self._version = version

    def start(self, folder: Path) -> Broker:
        self.service_port, self.bookie_port, self.bookie_web_port = free_port(), free_port(), free_port()
        return super().start(folder)

    @property
    def extra(self) -> str:
        return "test"

    def command(self) -> list[str]:
        java, installed = install.broker(self._version)
        self._offloaders = installed / "offloaders"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._conf.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        hadoop = _HADOOP | {"hadoop.tmp.dir": f"{self.folder}/hadoop"}
        properties = (
            f"<property><name>{name}</name><value>{escape(value)}</value></property>\n"
            for name, value in hadoop.items()
        )
        self.filesystem_profile.write_text(f"<configuration>\n{''.join(properties)}</configuration>\n")
        metadata_place = ("--metadata-dir", f"{self.folder}/metadata")
        if self.metadata_url is not None:
            metadata_place = ("--metadata-url", self.metadata_url)
        metadata_drivers = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
        properties = {
            "bookkeeper.metadata.bookie.drivers": f"{metadata_drivers}BookieDriver",
            "bookkeeper.metadata.client.drivers": f"{metadata_drivers}ClientDriver",
            "java.io.tmpdir": self.folder,
            # Otherwise the driver aws-s3 asks Amazon where the bucket is.
            "jclouds.regions": self._s3.region,
            f"jclouds.region.{self._s3.region}.endpoint": self._s3.endpoint,
            "log4j2.configurationFile": Path(__file__).with_name("pulsar") / "log4j2.properties",
        }
        return [
            *(str(java), "-Xmx1536m", "-XX:MaxDirectMemorySize=1536m", *self._java_options),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENED),
            *(f"-D{name}={value}" for name, value in properties.items()),
            *("-cp", f"{installed}/lib/*", "org.apache.pulsar.PulsarStandaloneStarter"),
            *("--config", str(self._conf)),
            *metadata_place,
            *("--bookkeeper-dir", f"{self.folder}/bookie"),
            *("--bookkeeper-port", str(self.bookie_port)),
            *("--no-functions-worker", "--no-stream-storage"),
        ]

    def is_ready(self) -> bool:
        """Return whether the namespace exists that the broker makes last when it starts for the first time."""
        return http_status(self.port, "GET", "/admin/v2/namespaces/pulsar/system") == 200

    @property
    def service_url(self) -> str:
        """The URL for Pulsar's clients."""
        return f"pulsar://{self.host}:{self.service_port}"

    @property
    def bookie_endpoint(self) -> str:
        """The URL of the bookie's REST."""
        return f"http://{self.host}:{self.bookie_web_port}"

    @property
    def filesystem_profile(self) -> Path:
        """The Hadoop configuration of the driver `filesystem`."""
        return self.folder / "filesystem_offload_core_site.xml"

    def s3_policies(self, bucket: str, *, deletion_lag_ms: int | None = None) -> dict[str, object]:
        """Offload policies: the driver `aws-s3` into a bucket.

        With a deletion lag the BookKeeper copy of a ledger goes when the topic is trimmed after so long.
        """
        return self._policies(
            "aws-s3",
            deletion_lag_ms,
            {
                "managedLedgerOffloadBucket": bucket,
                "managedLedgerOffloadRegion": self._s3.region,
                "managedLedgerOffloadServiceEndpoint": self._s3.endpoint,
                "managedLedgerOffloadMaxBlockSizeInBytes": DEFAULT_BLOCK_BYTES,
                "s3ManagedLedgerOffloadCredentialId": self._s3.root.access_key,
                "s3ManagedLedgerOffloadCredentialSecret": self._s3.root.secret_key,
            },
        )

    def filesystem_policies(self, root: Path, *, deletion_lag_ms: int | None = None) -> dict[str, object]:
        """Offload policies: the driver `filesystem` into a directory."""
        place = {"fileSystemURI": root.as_uri(), "fileSystemProfilePath": str(self.filesystem_profile)}
        return self._policies("filesystem", deletion_lag_ms, place)

    def _policies(
        self, driver: str, deletion_lag_ms: int | None, more: Mapping[str, object]
    ) -> dict[str, object]:
        lag = {} if deletion_lag_ms is None else {"managedLedgerOffloadDeletionLagInMillis": deletion_lag_ms}
        # A namespace's policies do not inherit the broker's folder of offloaders.
        place = {"managedLedgerOffloadDriver": driver, "offloadersDirectory": str(self._offloaders)}
        return place | lag | more

    def _settings(self) -> dict[str, object]:
        return {
            "clusterName": self.cluster,
            "advertisedAddress": self.host,
            "bindAddress": self.host,
            "webServicePort": self.port,
            "brokerServicePort": self.service_port,
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "managedLedgerMaxEntriesPerLedger": self._max_entries_per_ledger,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
            "defaultNumberOfNamespaceBundles": 1,
            "brokerDeleteInactiveTopicsEnabled": "false",
            "loadBalancerEnabled": "false",
            "systemTopicEnabled": self._system_topics,
            "transactionCoordinatorEnabled": self._transactions,
            # no snapshot but the first is made: transactions are recovered from a topic when it is loaded
            "transactionBufferSnapshotMinTimeInMillis": 3_600_000,
            "topicLevelPoliciesEnabled": self._topic_policies,
            "activeConsumerFailoverDelayTimeMillis": 0,
            "brokerEntryMetadataInterceptors": _ENTRY_METADATA if self._entry_metadata else "",
            "exposingBrokerEntryMetadataToClientEnabled": str(self._entry_metadata).lower(),
            "narExtractionDirectory": self.folder / "offloaders",
            # of the bookie
            "listeningInterface": "lo0" if sys.platform == "darwin" else "lo",
            "allowLoopback": "true",
            "allowEphemeralPorts": "true",  # without it the bookie takes any port instead of its own
            "httpServerEnabled": "true",
            "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
            "httpServerHost": self.host,
            "httpServerPort": self.bookie_web_port,
            "journalSyncData": "false",
            "nettyMaxFrameSizeBytes": 5_253_120,  # Pulsar's; the bookie's own has no room for the largest entry
            "diskUsageThreshold": 0.99,
            "diskUsageWarnThreshold": 0.99,
        }

    @property
    def _conf(self) -> Path:
        return self.folder / "standalone.conf"
