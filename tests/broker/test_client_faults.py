"""Where Pulsar's official Python client reads less than there is; each test fails once the client is mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pulsar
from consumer_process import ConsumerProcess
from pulsar_admin import PulsarAdmin
from pulsar_topics import produce
from servers.broker import Broker
from stores import Store


def test_the_client_drops_a_message_that_zlib_made_of_nothing(
    broker: Broker,
    admin: PulsarAdmin,
    client: pulsar.Client,
    consumers: ConsumerProcess,
    new_namespace: Callable[[dict[str, object]], str],
    new_store: Callable[[], tuple[str, Store]],
) -> None:
    bucket, store = new_store()
    topic = f"persistent://{new_namespace(broker.s3_policies(bucket))}/zlib"
    messages = [{"content": b""}, {"content": b"something"}]
    sent = produce(client, topic, messages, compression_type=pulsar.CompressionType.ZLib)
    last = {max(sent): sent[max(sent)]}
    assert [message["value"] for message in consumers.consume(topic, last)] == [b"something"]
    admin.offload_all(topic)
    with store.open_reader() as tier:
        assert tier.scan(topic=topic, columns=["value"]).to_table()["value"].to_pylist() == [
            b"",
            b"something",
        ]


def test_a_client_that_crashes_costs_no_test(
    broker: Broker,
    client: pulsar.Client,
    new_namespace: Callable[[dict[str, object]], str],
    tmp_path: Path,
) -> None:
    topic = f"persistent://{new_namespace(broker.filesystem_policies(tmp_path))}/crash"
    sent = produce(client, topic, [{"content": b"%d" % i} for i in range(5)])
    with ConsumerProcess(broker.service_url) as consumers:
        read = consumers.consume(topic, sent)
        (child,) = psutil.Process().children()[-1:]
        assert "multiprocessing.spawn" in " ".join(child.cmdline())
        child.kill()
        assert consumers.consume(topic, sent) == read
