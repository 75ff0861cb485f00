"""The broker itself: it keeps its topics over a restart, and an offload that fails is noticed."""

from __future__ import annotations

import psutil
import pytest
from live.broker import AdminError, produce


@pytest.mark.nightly
def test_a_broker_keeps_its_topics_over_a_restart(live, tmp_path):
    broker, admin = live.broker, live.admin
    topic = f"persistent://{live.new_namespace(broker.filesystem_policies(tmp_path))}/topic"
    sent = produce(live.client, topic, [{"content": b"%d" % i} for i in range(50)])
    read = live.consumers.consume(topic, sent)
    ledgers = admin.offload_all(topic)
    first = broker.pid

    broker.restart()
    assert not psutil.pid_exists(first)
    assert admin.ledgers(topic)[: len(ledgers)] == ledgers
    assert [ledger.entries for ledger in ledgers] == [20, 20, 10]
    assert all(ledger.offloaded and ledger.in_bookkeeper for ledger in ledgers)
    assert live.consumers.consume(topic, sent) == read


def test_an_offload_that_fails_is_an_error(live, tmp_path):
    (tmp_path / "file").touch()
    topic = f"persistent://{live.new_namespace(live.broker.filesystem_policies(tmp_path / 'file'))}/topic"
    produce(live.client, topic, [{"content": b"a"}])
    with pytest.raises(AdminError, match="was not offloaded"):
        live.admin.offload_all(topic)
