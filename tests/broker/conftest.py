"""Topics of a running broker, offloaded to S3 and to a directory, with what the official client read from them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from live.broker import LivePulsar, Read, TopicLedger
from live.clients import JavaClient, TransactionalPulsar
from live.sent import PARTITIONS, TOPICS
from scenes.messages import public_pem, write_keys
from servers import install
from servers.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadedTopic:
    """A topic that is in cold storage as a whole.

    Attributes:
        name: `persistent://…`, of a partitioned topic its base name.
        read: what the client read before, partition after partition.
        ledgers: those offloaded, by the name of the topic or partition.
    """

    name: str
    read: list[Read]
    ledgers: dict[str, list[TopicLedger]]


@pytest.fixture(scope="session")
def live(broker, versitygw):
    """The broker and its clients, and all that is made for a test of its own."""
    with LivePulsar.connected(broker, versitygw) as live:
        yield live


@pytest.fixture(scope="session")
def admin(live):
    """The broker's admin REST."""
    return live.admin


@pytest.fixture(scope="session")
def client(live):
    """Pulsar's official client."""
    return live.client


@pytest.fixture(scope="session")
def consumers(live):
    """Pulsar's official client where it consumes."""
    return live.consumers


@pytest.fixture(scope="session")
def transactional(transactional_broker, versitygw, oracle):
    """A broker that takes transactions, and its clients."""
    with TransactionalPulsar.connected(transactional_broker, versitygw, oracle=oracle) as live:
        yield live


@pytest.fixture(
    scope="session", params=[install.PULSAR, pytest.param(install.OLDER_PULSAR, marks=pytest.mark.nightly)]
)
def live_broker(request, tmp_path_factory):
    """A broker whose metadata is in a ZooKeeper, of each version."""
    if request.param == install.PULSAR:
        yield request.getfixturevalue("zookeeper_broker")
        return
    versitygw, zookeeper = (request.getfixturevalue(name) for name in ("versitygw", "zookeeper"))
    root = zookeeper.make_root(f"/pulsar-{request.param}")
    broker = Broker(versitygw, transactions=True, metadata_url=root, version=request.param)
    with broker.start(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def live_by_zookeeper(live_broker, versitygw, oracle):
    """That broker, and its clients."""
    with TransactionalPulsar.connected(live_broker, versitygw, oracle=oracle) as live:
        yield live


@pytest.fixture(scope="session")
def records(live_broker):
    """The URL of that broker's metadata."""
    return live_broker.metadata_url.replace("zk:", "zk://")


@pytest.fixture(scope="session")
def keys(tmp_path_factory):
    """A folder with the private key `orders.pem` and the public key `orders.pub`."""
    folder = write_keys(tmp_path_factory.mktemp("keys"), "orders")
    (folder / "orders.pub").write_bytes(public_pem("orders"))
    return folder


@pytest.fixture(scope="session")
def java_client(broker, oracle):
    """Pulsar's Java client."""
    return JavaClient(oracle, broker.service_url)


@pytest.fixture(scope="session")
def cold(live):
    """A namespace for topics of the tests' own, each with another name."""
    return live.new_cold_namespace()


@pytest.fixture(scope="session")
def s3_tier(live):
    """A bucket into which the broker offloaded `TOPICS`, which BookKeeper has no more."""
    cold = live.new_cold_namespace()
    return cold.store, _offload_topics(live, cold.name)


@pytest.fixture(scope="session")
def filesystem_tier(live, tmp_path_factory):
    """A directory into which the broker offloaded `TOPICS`, which BookKeeper has no more."""
    root = tmp_path_factory.mktemp("offloaded")
    namespace = live.new_namespace(live.broker.filesystem_policies(root, deletion_lag_ms=0))
    return root, _offload_topics(live, namespace)


def _offload_topics(live: LivePulsar, namespace: str) -> dict[str, OffloadedTopic]:
    return {name: _offload_topic(live, name, f"persistent://{namespace}/{name}") for name in TOPICS}


def _offload_topic(live: LivePulsar, name: str, topic: str) -> OffloadedTopic:
    partitions = PARTITIONS.get(name, 0)
    if partitions:
        live.admin.make_partitioned_topic(topic, partitions)
    sent = live.send(topic, TOPICS[name])
    names = [f"{topic}-partition-{i}" for i in range(partitions)] or [topic]
    ledgers = {}
    for each in names:
        ledgers[each] = live.admin.offload_all(each)
        live.admin.drop_bookkeeper_copies(each)
    return OffloadedTopic(name=topic, read=sent.read, ledgers=ledgers)
