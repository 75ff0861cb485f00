"""Where Pulsar's official Python client reads less than there is; each test fails once the client is mended."""

from __future__ import annotations

import psutil
import pulsar
import pytest
from live.broker import ConsumerProcess, produce

from pulsar_offload import scan

pytestmark = pytest.mark.nightly


def test_the_client_drops_a_message_that_zlib_made_of_nothing(live):
    cold = live.new_cold_namespace()
    topic = cold.topic("zlib")
    messages = [{"content": b""}, {"content": b"something"}]
    sent = produce(live.client, topic, messages, compression_type=pulsar.CompressionType.ZLib)
    last = {max(sent): sent[max(sent)]}
    assert [message["value"] for message in live.consumers.consume(topic, last)] == [b"something"]
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert scan(tier, topic, columns=["value"]).to_table()["value"].to_pylist() == [b"", b"something"]


def test_a_client_that_crashes_costs_no_test(live, tmp_path):
    topic = f"persistent://{live.new_namespace(live.broker.filesystem_policies(tmp_path))}/crash"
    sent = produce(live.client, topic, [{"content": b"%d" % i} for i in range(5)])
    with ConsumerProcess(live.broker.service_url) as consumers:
        read = consumers.consume(topic, sent)
        children = psutil.Process().children()
        spawned = [each for each in children if "multiprocessing.spawn" in " ".join(each.cmdline())]
        max(spawned, key=lambda child: child.create_time()).kill()
        assert consumers.consume(topic, sent) == read
