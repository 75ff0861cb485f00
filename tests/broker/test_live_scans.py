"""Topics of a running broker are read whole, cold and hot, and followed, as its own client reads them."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from live.broker import scanned
from live.sent import TOPICS, steps
from waiting import wait_for

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.admin_records import AdminRecords
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.reading.scan import read_task
from pulsar_offload import open_tier, scan

PRIORITIES = ("tiered-storage-first", "bookkeeper-first")
COLUMNS = ("__ledgerId", "__entryId", "__batchIndex", "value")


@pytest.fixture(scope="module")
def live(live_by_zookeeper):
    return live_by_zookeeper


@pytest.fixture(scope="module")
def hot(records, live_broker):
    return "bookkeeper", {"url": records, "admin_url": live_broker.endpoint}


@pytest.mark.parametrize("kind", ["compression-lz4", pytest.param("partitioned", marks=pytest.mark.nightly)])
def test_a_topic_is_read_whole_before_while_and_after_it_is_offloaded(live, hot, records, kind):
    cold = live.new_cold_namespace()
    topic = cold.topic(kind)
    sent = live.send(topic, TOPICS[kind])
    ledgers = live.admin.ledgers(topic)
    assert len(ledgers) > 2
    with open_tier(cold.store.url, hot=hot, **cold.store.options) as tier:

        def assert_read():
            for priority in PRIORITIES:
                read = scanned(tier, topic, records=records, tiered_read_priority=priority)
                assert read == sent.read, priority

        assert_read()
        planned = scan(tier, topic, level="entries", records=records, tiered_read_priority="bookkeeper-first")
        before, tasks = planned.to_table(), planned.tasks
        live.admin.offload_before(topic, ledgers[len(ledgers) // 2].ledger_id)
        assert_read()
        live.admin.drop_bookkeeper_copies(topic)
        assert_read()
        after = [batch for task in tasks for batch in read_task(planned.tier, task, planned.options)]
        assert [row for batch in after for row in batch.to_pylist()] == before.to_pylist()


def test_the_read_priority_is_that_of_the_brokers_policies(live):
    """Those of topics, which this broker has none of, are in `test_pulsar_admin`."""
    cold = live.new_cold_namespace()
    topic = live.send(cold.topic("priority"), TOPICS["keyed"]).name
    ours = live.broker.s3_policies(cold.store.url.removeprefix("s3://"))
    hot_first = ours | {"managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST"}
    cold_first = ours | {"managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST"}
    with closing(AdminRecords(live.broker.endpoint)) as store:

        def priority():
            return StoreRecords(store).read_priority(parse_topic(topic))

        for policies, expected in ((hot_first, "BOOKKEEPER_FIRST"), (cold_first, "OFFLOADED_FIRST")):
            live.admin.set_offload_policies(cold.name, policies)
            wait_for(lambda expected=expected: priority().name == expected, 30)


def test_an_open_transaction_ends_a_topic_as_for_a_consumer(live, hot, records):
    cold = live.new_cold_namespace()
    topic = cold.topic("transactions")
    live.send_steps(topic, list(steps()))
    expected = [(row["ledger"], row["entry"], row["batch_index"], row["value"]) for row in live.read(topic)]
    assert expected
    with open_tier(cold.store.url, hot=hot, **cold.store.options) as tier:
        planned = scan(tier, topic, columns=COLUMNS, records=records, task_bytes=1)
        of_tasks = [
            batch for task in planned.tasks for batch in read_task(planned.tier, task, planned.options)
        ]
        for batches in (planned, of_tasks):
            rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
            assert [(*row[:3], row[3].decode()) for row in rows] == expected


@pytest.mark.spark
@pytest.mark.nightly  # it takes a minute
def test_a_stream_has_each_message_once_while_the_broker_rolls_offloads_and_deletes(
    live, hot, records, spark
):
    cold = live.new_cold_namespace()
    topic = cold.topic("followed")
    sent: list[bytes] = []
    read: list[bytes] = []
    stopped = threading.Event()

    def produce():
        with closing(
            live.client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
        ) as producer:
            while not stopped.wait(0.02):
                value = b"%d" % len(sent)
                producer.send_async(value, lambda *_: None)
                sent.append(value)
            producer.flush()

    def collect(batch, _):
        read.extend(bytes(row["value"]) for row in batch.collect())

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        wait_for(lambda: len(sent) > 10, 30)
        reader = spark.readStream.format("pulsar_offload").options(**cold.store.spark_options())
        for name, value in hot[1].items():
            reader = reader.option(f"hot.{name}", value)
        reader = reader.option("hot", hot[0]).option("records", records).option("topic", topic)
        reader = reader.option("startingOffsets", "earliest").option("refreshIntervalMs", 200)
        frame = reader.load().select("value")
        query = frame.writeStream.trigger(processingTime="1 second").foreachBatch(collect).start()
        try:
            for _ in range(2):
                at = len(sent)
                ledgers = len(live.admin.ledgers(topic))
                wait_for(lambda ledgers=ledgers: len(live.admin.ledgers(topic)) > ledgers, 60)
                live.admin.offload_before(topic, live.admin.ledgers(topic)[-1].ledger_id)
                live.admin.drop_bookkeeper_copies(topic)
                wait_for(lambda at=at: query.exception() or len(read) > at, 60)
                assert query.exception() is None
            stopped.set()
            producing.join()
            query.processAllAvailable()
        finally:
            query.stop()
    finally:
        stopped.set()
        producing.join()
    assert read == sent
    assert len(live.admin.ledgers(topic)) > 2
