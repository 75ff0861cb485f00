"""The broker itself: it keeps its topics over a restart, and an offload that fails is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pulsar
import pytest
from consumer_process import ConsumerProcess
from pulsar_admin import AdminError, PulsarAdmin
from pulsar_topics import produce
from servers.broker import Broker


def test_a_broker_keeps_its_topics_over_a_restart(
    broker: Broker,
    admin: PulsarAdmin,
    client: pulsar.Client,
    consumers: ConsumerProcess,
    new_namespace: Callable[[dict[str, object]], str],
    tmp_path: Path,
) -> None:
    topic = f"persistent://{new_namespace(broker.filesystem_policies(tmp_path))}/topic"
    sent = produce(client, topic, [{"content": b"%d" % i} for i in range(50)])
    read = consumers.consume(topic, sent)
    ledgers = admin.offload_all(topic)
    first = broker.pid

    broker.restart()
    assert not psutil.pid_exists(first)
    assert admin.ledgers(topic)[: len(ledgers)] == ledgers
    assert [(ledger.entries, ledger.offloaded, ledger.in_bookkeeper) for ledger in ledgers] == [
        (20, True, True),
        (20, True, True),
        (10, True, True),
    ]
    assert consumers.consume(topic, sent) == read


def test_an_offload_that_fails_is_an_error(
    broker: Broker,
    admin: PulsarAdmin,
    client: pulsar.Client,
    new_namespace: Callable[[dict[str, object]], str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    topic = f"persistent://{new_namespace(broker.filesystem_policies(tmp_path / 'file'))}/topic"
    produce(client, topic, [{"content": b"a"}])
    with pytest.raises(AdminError, match="was not offloaded"):
        admin.offload_all(topic)
