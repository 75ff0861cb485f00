"""Topics of a running broker, offloaded to S3 and to a directory, with what the official client read from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pulsar
import pytest
import s3
from client_views import Clients
from cold_topics import ColdNamespace
from consumer_process import ConsumerProcess
from java_client import JavaClient
from oracle import Oracle
from pulsar_admin import PulsarAdmin, TopicLedger
from pulsar_topics import Read
from sent_topics import PARTITIONS, TOPICS
from servers.broker import Broker
from servers.versitygw import Versitygw
from stores import Store

_numbers = itertools.count()


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
def admin(broker: Broker) -> PulsarAdmin:
    """The broker's admin REST."""
    return PulsarAdmin(broker.endpoint, broker.bookie_endpoint)


@pytest.fixture(scope="session")
def client(broker: Broker) -> Iterator[pulsar.Client]:
    """Pulsar's official client."""
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(broker.service_url, logger=quiet)
    yield client
    client.close()


@pytest.fixture(scope="session")
def consumers(broker: Broker) -> Iterator[ConsumerProcess]:
    """Pulsar's official client where it consumes."""
    with ConsumerProcess(broker.service_url) as process:
        yield process


@pytest.fixture(scope="session")
def new_namespace(broker: Broker, admin: PulsarAdmin) -> Callable[[dict[str, object]], str]:
    """Make an empty namespace with these offload policies; its name."""

    def make(policies: dict[str, object]) -> str:
        return admin.make_namespace(f"tests/cold-{next(_numbers)}", policies, cluster=broker.cluster)

    return make


@pytest.fixture(scope="session")
def new_store(versitygw: Versitygw) -> Callable[[], tuple[str, Store]]:
    """Make an empty bucket; its name, and the tier in it as our readers open it."""

    def make() -> tuple[str, Store]:
        bucket = s3.new_bucket(versitygw)
        return bucket, Store(name="s3", url=f"s3://{bucket}", options=s3.options(versitygw))

    return make


@pytest.fixture(scope="session")
def transactional(transactional_broker: Broker, oracle: Oracle) -> Iterator[Clients]:
    """The clients of a broker that takes transactions."""
    broker = transactional_broker
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield Clients(broker, PulsarAdmin(broker.endpoint, broker.bookie_endpoint), client, oracle)
    client.close()


@pytest.fixture(scope="session")
def java_client(broker: Broker, oracle: Oracle) -> JavaClient:
    """Pulsar's Java client."""
    return JavaClient(oracle, broker.service_url)


@pytest.fixture(scope="session")
def cold(
    broker: Broker,
    admin: PulsarAdmin,
    new_namespace: Callable[[dict[str, object]], str],
    new_store: Callable[[], tuple[str, Store]],
) -> ColdNamespace:
    """A namespace for topics of the tests' own, each with another name."""
    bucket, store = new_store()
    return ColdNamespace(new_namespace(broker.s3_policies(bucket, deletion_lag_ms=0)), store, admin)


@pytest.fixture(scope="session")
def s3_tier(
    broker: Broker,
    admin: PulsarAdmin,
    client: pulsar.Client,
    consumers: ConsumerProcess,
    new_namespace: Callable[[dict[str, object]], str],
    new_store: Callable[[], tuple[str, Store]],
) -> tuple[Store, dict[str, OffloadedTopic]]:
    """A bucket into which the broker offloaded `TOPICS`, which BookKeeper has no more."""
    bucket, store = new_store()
    namespace = new_namespace(broker.s3_policies(bucket, deletion_lag_ms=0))
    return store, _offload_topics(admin, client, consumers, namespace)


@pytest.fixture(scope="session")
def filesystem_tier(
    broker: Broker,
    admin: PulsarAdmin,
    client: pulsar.Client,
    consumers: ConsumerProcess,
    new_namespace: Callable[[dict[str, object]], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, OffloadedTopic]]:
    """A directory into which the broker offloaded `TOPICS`, which BookKeeper has no more."""
    root = tmp_path_factory.mktemp("offloaded")
    namespace = new_namespace(broker.filesystem_policies(root, deletion_lag_ms=0))
    return root, _offload_topics(admin, client, consumers, namespace)


def _offload_topics(
    admin: PulsarAdmin, client: pulsar.Client, consumers: ConsumerProcess, namespace: str
) -> dict[str, OffloadedTopic]:
    return {
        name: _offload_topic(admin, client, consumers, f"persistent://{namespace}/{name}") for name in TOPICS
    }


def _offload_topic(
    admin: PulsarAdmin, client: pulsar.Client, consumers: ConsumerProcess, topic: str
) -> OffloadedTopic:
    name = topic.rpartition("/")[2]
    partitions = PARTITIONS.get(name, 0)
    if partitions:
        admin.make_partitioned_topic(topic, partitions)
    sent = TOPICS[name](client, topic)
    read = consumers.consume(topic, sent)
    names = [f"{topic}-partition-{i}" for i in range(partitions)] or [topic]
    ledgers = {}
    for each in names:
        ledgers[each] = admin.offload_all(each)
        admin.drop_bookkeeper_copies(each)
    return OffloadedTopic(name=topic, read=read, ledgers=ledgers)
