"""Reads by the admin REST of a running broker: partitions, gaps, topics that are partly hot."""

from __future__ import annotations

import shutil
from functools import partial

import pytest
from live.broker import COLUMNS, Read, messages_by_topic, produce, scanned
from live.sent import TOPICS

from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue import TopicName, open_records
from offload_core.reading.scan import Position
from offload_hooks.errors import DataLossError, StoreError, UnknownTopicError
from pulsar_offload import open_tier, scan


@pytest.mark.sampled(6)
@pytest.mark.parametrize("topic", TOPICS)
def test_the_arrow_scan_by_the_admin_rest_gives_what_the_client_read(broker, s3_tier, topic):
    store, topics = s3_tier
    with store.open_reader() as tier:
        assert scanned(tier, topics[topic].name, records=broker.endpoint) == topics[topic].read


@pytest.mark.nightly
@pytest.mark.spark
def test_the_spark_source_by_the_admin_rest_gives_what_the_client_read(broker, s3_tier, spark):
    store, topics = s3_tier
    namespace = next(iter(topics.values())).name.removeprefix("persistent://").rpartition("/")[0]
    reader = spark.read.format("pulsar_offload").options(**store.spark_options())
    reader = reader.option("records", broker.endpoint).option("records.timeout_s", "20")
    frame = reader.option("topicsPattern", f"{namespace}/.*").option("columns", ",".join(COLUMNS)).load()
    found = messages_by_topic(frame.toArrow().to_pylist(maps_as_pydicts="strict"))
    assert found == {name: topic.read for name, topic in topics.items()}


@pytest.mark.nightly
def test_mapfiles_are_found_by_the_admin_rest_and_sound(broker, filesystem_tier):
    root, topics = filesystem_tier
    with open_tier(root) as tier:
        for topic in topics.values():
            assert scanned(tier, topic.name, records=broker.endpoint) == topic.read
        assert list(Verification(tier.store, deep=True)) == []


def test_what_the_broker_offloaded_is_sound_to_the_last_byte(broker, s3_tier):
    store, topics = s3_tier
    namespace = next(iter(topics.values())).name.rpartition("/")[0]
    with store.open_reader() as tier:
        records = partial(open_records, broker.endpoint, tier.store, {})
        verification = Verification(tier.store, deep=True, records=records)
        # Other namespaces are offloaded to other tiers, which the admin REST does not tell.
        assert not [each for each in verification if each.topic is None or each.topic.startswith(namespace)]
        assert verification.summary.deep_objects == verification.summary.objects > 0
        assert verification.summary.ledgers >= verification.summary.objects


# --- what is not offloaded ---------------------------------------------------------------------


class Growing:
    """A topic whose first 40 entries (two ledgers) are offloaded into a directory; 25 more are in BookKeeper only."""

    def __init__(self, live, root):
        namespace = live.new_namespace(live.broker.filesystem_policies(root))
        self.name = f"persistent://{namespace}/growing"
        self.root = root
        sent = produce(live.client, self.name, [{"content": b"%d" % i} for i in range(40)])
        self.cold: list[Read] = live.consumers.consume(self.name, sent)
        self.ledgers = [ledger.ledger_id for ledger in live.admin.offload_all(self.name)]
        produce(live.client, self.name, [{"content": b"hot"}] * 25)
        self.all = [ledger.ledger_id for ledger in live.admin.ledgers(self.name)]
        self.records = live.broker.endpoint

    def read(self, tier, **options):
        return scanned(tier, self.name, records=self.records, **options)

    def at(self, ledger_id, entry_id):
        return {TopicName(self.name): Position(ledger_id, entry_id)}


@pytest.fixture(scope="module")
def growing(live, tmp_path_factory):
    return Growing(live, tmp_path_factory.mktemp("growing"))


def test_latest_is_the_end_of_what_is_offloaded_and_a_warning_says_where_that_is(growing, caplog):
    with open_tier(growing.root) as tier:
        assert growing.read(tier) == growing.cold
    hot = ", ".join(str(each) for each in growing.all[2:])
    (message,) = [message for message in caplog.messages if "read up to" in message]
    end = f"{growing.ledgers[-1]}:20"
    assert message.startswith(f"{growing.name} is read up to {end}: ledgers {hot} have no complete copy")


def test_a_stop_behind_that_is_loss_with_the_ledgers_and_positions(growing):
    first, last = growing.all[2], growing.all[-1]
    with open_tier(growing.root) as tier:
        assert growing.read(tier, stop=growing.at(first, 0)) == growing.cold
        hot = f"found ledger {first}: by its record it is in BookKeeper only"
        with pytest.raises(DataLossError, match=hot) as caught:
            growing.read(tier, stop=growing.at(last, 5))
        assert caught.value.expected == f"positions {first}:0 to {last}:4"
        assert growing.read(tier, stop=growing.at(last, 5), fail_on_data_loss=False) == growing.cold


def test_a_copy_that_is_gone_is_loss(growing, tmp_path):
    shutil.copytree(growing.root, tmp_path, dirs_exist_ok=True)
    (gone,) = tmp_path.rglob(f"{growing.ledgers[0]}-*")
    shutil.rmtree(gone)
    with open_tier(tmp_path) as tier:
        missing = "its record says that a driver that it does not name has it"
        with pytest.raises(DataLossError, match=missing) as caught:
            growing.read(tier)
        assert caught.value.expected == f"positions {growing.ledgers[0]}:0 to {growing.ledgers[0]}:19"
        assert growing.read(tier, fail_on_data_loss=False) == growing.cold[20:]


# --- asked wrongly -----------------------------------------------------------------------------


def test_a_topic_or_namespace_that_the_broker_has_not_is_unknown(broker, growing):
    namespace = growing.name.removeprefix("persistent://").rpartition("/")[0]
    with open_tier(growing.root) as tier:
        with pytest.raises(UnknownTopicError, match="growing"):
            scan(tier, f"{namespace}/nothing", records=broker.endpoint)
        for topic in ("tests/nowhere/nothing", "nobody/nowhere/nothing"):
            with pytest.raises(UnknownTopicError, match="none at all"):
                scan(tier, topic, records=broker.endpoint)


def test_a_server_that_is_no_broker_is_named(broker, growing):
    with open_tier(growing.root) as tier, pytest.raises(StoreError, match=r"object http://127\.0\.0\.1"):
        scan(tier, growing.name, records=broker.bookie_endpoint)
