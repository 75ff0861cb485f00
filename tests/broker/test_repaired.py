"""A broker whose offloaded ledgers have lost their indexes serves them again once these are made anew."""

from __future__ import annotations

from collections.abc import Callable

import pulsar
from consumer_process import ConsumerProcess
from in_their_place import keys_of
from pulsar_admin import PulsarAdmin
from pulsar_topics import read_from
from repairs import Lines
from sent_topics import TOPICS
from servers.broker import Broker
from stores import Store

from offload_core.offload.clock import system_now_ms
from offload_core.repair import Action, Repair
from offload_core.verify import Code, Verification

AN_HOUR_MS = 3_600_000


def test_a_broker_serves_ledgers_again_whose_indexes_were_lost(
    broker: Broker,
    admin: PulsarAdmin,
    client: pulsar.Client,
    consumers: ConsumerProcess,
    new_namespace: Callable[[dict[str, object]], str],
    new_store: Callable[[], tuple[str, Store]],
) -> None:
    bucket, store = new_store()
    topic = f"persistent://{new_namespace(broker.s3_policies(bucket, deletion_lag_ms=0))}/repaired"
    sent = TOPICS["compression-lz4"](client, topic)
    read = consumers.consume(topic, sent)
    keys = keys_of(admin.offload_all(topic))
    admin.drop_bookkeeper_copies(topic)
    assert not [ledger for ledger in admin.ledgers(topic)[:-1] if ledger.in_bookkeeper]
    admin.unload(topic)
    with store.open() as tier:
        assert list(Verification(tier, deep=True)) == []
        pulsars = [tier.stat(key.index_key).size_bytes for key in keys]
        tier.delete([key.index_key for key in keys])
        assert [each.code for each in Verification(tier, deep=True)] == [Code.NO_INDEX] * len(keys)
        work, lines = Repair(tier, now_ms=lambda: system_now_ms() + AN_HOUR_MS), Lines()
        planned = list(work.plan())
        assert [each.choice.action for each in planned] == [Action.REBUILD_INDEX] * len(keys)
        for each in planned:
            work.do(each, lines)
        assert len(lines.lines) == len(keys)
        assert list(Verification(tier, deep=True)) == []
        assert [tier.stat(key.index_key).size_bytes > 0 for key in keys] == [size > 0 for size in pulsars]

    admin.unload(topic)
    assert consumers.consume(topic, sent) == read
    for start in (1, len(read) // 2, len(read) - 1):
        admin.unload(topic)
        assert read_from(client, topic, read[start]["message_id"], sent) == read[start:]
