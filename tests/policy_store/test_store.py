"""Policies in a metadata store: set, resolved over three levels, checked when they are set, by many at once."""

from __future__ import annotations

import itertools
import json
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from offload_core.metadata.catalogue.topics import parse_topic
from offload_core.metadata.policies import RetentionPolicies, parse_policies
from offload_core.metadata.policies.level import LevelPolicies
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import (
    InvalidKeyError,
    MetadataError,
    OptionError,
    OutcomeUnknownError,
    UnknownPluginError,
)
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore
from offload_hooks.testing.threads import together

TOPIC = parse_topic("acme/n/orders")
_numbers = itertools.count()


@pytest.fixture
def store():
    return MemoryMetadataStore()


@pytest.fixture
def policies(store):
    return PolicyStore(store)


def test_policies_lie_where_pulsar_has_them(store, policies):
    policies.change_namespace("acme/n", lambda level: level.with_fields(driver="s3"))
    policies.change_topic(
        parse_topic("acme/n/a b-partition-3"), lambda level: level.with_fields(max_threads=3)
    )
    assert json.loads(store.metadata.records["/admin/policies/acme/n"][0]) == {
        "offload_policies": {"managedLedgerOffloadDriver": "s3"}
    }
    assert json.loads(store.metadata.records["/admin/topic-policies/acme/n/persistent/a+b"][0]) == {
        "offloadPolicies": {"managedLedgerOffloadMaxThreads": 3}
    }
    assert policies.topic(parse_topic("acme/n/a b-partition-0")).offload == parse_policies({"max_threads": 3})


def test_each_value_comes_from_the_lowest_level_that_says_it(store):
    policies = PolicyStore(
        store,
        broker=parse_policies({"driver": "s3", "bucket": "cold", "max_threads": 7}),
        broker_retention=RetentionPolicies(time_in_minutes=5, size_in_mb=6),
    )
    policies.change_namespace("acme/n", lambda level: level.with_fields(max_threads=8))
    policies.change_topic(TOPIC, lambda level: level.with_fields(threshold_in_seconds=9))
    rows = {name: (value, origin) for name, value, origin in policies.resolve(TOPIC).explain()}
    assert rows["managedLedgerOffloadBucket"] == ("cold", "broker")
    assert rows["managedLedgerOffloadMaxThreads"] == ("8", "namespace")
    assert rows["managedLedgerOffloadThresholdInSeconds"] == ("9", "topic")
    assert rows["managedLedgerOffloadThresholdInBytes"] == ("-1", "default")
    assert rows["retentionSizeInMB"] == ("6", "broker")
    assert policies.resolve_namespace("acme/n").offload["threshold_in_seconds"] == -1
    assert policies.resolve(parse_topic("acme/other/t")).offload["max_threads"] == 7


def test_retention_is_a_levels_as_a_whole(policies):
    kept = RetentionPolicies(time_in_minutes=10, size_in_mb=-1)
    policies.change_namespace("acme/n", lambda level: replace(level, retention=kept))
    found = policies.resolve(TOPIC)
    assert (found.retention, found.retention_origin) == (kept, "namespace")
    policies.change_topic(TOPIC, lambda level: replace(level, retention=RetentionPolicies()))
    assert policies.resolve(TOPIC).retention == RetentionPolicies()
    assert PolicyStore(MemoryMetadataStore()).resolve(TOPIC).retention_origin == "default"


def test_what_says_nothing_any_more_has_no_record(store, policies):
    policies.change_topic(TOPIC, lambda level: level.with_fields(driver="s3"))
    policies.change_topic(TOPIC, lambda level: replace(level, offload=None))
    policies.change_topic(TOPIC, lambda level: replace(level, offload=None))
    assert store.metadata.records == {}
    assert policies.topic(TOPIC) == LevelPolicies()


def test_others_fields_are_kept(store, policies):
    record = {"bundles": {"numBundles": 4}, "offload_policies": {"fromTheFuture": [1]}}
    store.put("/admin/policies/acme/n", json.dumps(record).encode(), None)
    policies.change_namespace("acme/n", lambda level: level.with_fields(max_threads=5))
    record["offload_policies"] = {"fromTheFuture": [1], "managedLedgerOffloadMaxThreads": 5}
    assert json.loads(store.metadata.records["/admin/policies/acme/n"][0]) == record


def test_what_a_topic_says_goes_with_its_last_managed_ledger(store, policies):
    records = ManagedLedgerRecords(store)
    partitions = [f"acme/n/persistent/orders-partition-{number}" for number in range(2)]
    kept = [records.write(name, ManagedLedgerInfo(), None) for name in (*partitions, "acme/n/persistent/ord")]
    policies.change_topic(TOPIC, lambda level: level.with_fields(max_threads=3))
    for name, record in zip(partitions, kept, strict=False):
        assert policies.topic(TOPIC).offload == parse_policies({"max_threads": 3})
        records.delete(name, record)
        policies.forget_topic(parse_topic(name))
    assert policies.topic(TOPIC) == LevelPolicies()
    policies.forget_topic(TOPIC)


def test_what_is_said_of_a_topic_while_it_is_forgotten_stays():
    store = FaultyMetadataStore(MemoryMetadataStore())
    policies = PolicyStore(store)
    policies.change_topic(TOPIC, lambda level: level.with_fields(max_threads=3))

    def change_first(call):
        if call.method == "children":
            store.choose = lambda _: None
            policies.change_topic(TOPIC, lambda level: level.with_fields(max_threads=4))

    store.choose = change_first
    policies.forget_topic(TOPIC)
    assert policies.topic(TOPIC).offload == parse_policies({"max_threads": 4})


# --- refused when they are set -----------------------------------------------------------------


def test_a_threshold_that_retention_outruns_is_refused_with_both_values(store, policies):
    hour = RetentionPolicies(time_in_minutes=60, size_in_mb=-1)
    policies.change_namespace("acme/n", lambda level: replace(level, retention=hour))
    before = dict(store.metadata.records)
    both = r"retentionTimeInMinutes = 60 .*found managedLedgerOffloadThresholdInSeconds = 3600"
    with pytest.raises(OptionError, match=f"namespace acme/n: .*{both}"):
        policies.change_namespace("acme/n", lambda level: level.with_fields(threshold_in_seconds=3600))
    with pytest.raises(OptionError, match=f"topic persistent://acme/n/orders: .*{both}"):
        policies.change_topic(TOPIC, lambda level: level.with_fields(threshold_in_seconds=3600))
    assert store.metadata.records == before
    policies.change_topic(TOPIC, lambda level: level.with_fields(threshold_in_seconds=3599))


def test_a_namespace_is_refused_what_a_topic_in_it_cannot_have(policies):
    policies.change_topic(TOPIC, lambda level: level.with_fields(threshold_in_seconds=600))
    short = RetentionPolicies(time_in_minutes=5, size_in_mb=-1)
    with pytest.raises(OptionError, match=r"topic persistent://acme/n/orders: .* = 600 \(topic\)"):
        policies.change_namespace("acme/n", lambda level: replace(level, retention=short))
    policies.change_namespace("acme/m", lambda level: replace(level, retention=short))


def test_the_brokers_own_are_checked_at_once():
    with pytest.raises(OptionError, match=r"the broker: .* = 60 \(broker\)"):
        PolicyStore(
            MemoryMetadataStore(),
            broker=parse_policies({"threshold_in_seconds": 60}),
            broker_retention=RetentionPolicies(time_in_minutes=1, size_in_mb=-1),
        )


def test_a_driver_or_filter_that_is_not_installed_is_refused(policies):
    with pytest.raises(UnknownPluginError, match=r"driver 'aws-s4'.*Did you mean 'aws-s3'"):
        policies.change_namespace("acme/n", lambda level: level.with_fields(driver="aws-s4"))
    with pytest.raises(UnknownPluginError, match=r"offload filter 'transaction'.*mean 'transactions'"):
        policies.change_namespace("acme/n", lambda level: level.with_fields(filter="transaction"))
    policies.change_namespace("acme/n", lambda level: level.with_fields(filter="transactions"))
    found = policies.resolve_namespace("acme/n").offload
    assert (found.filter_name, found.filter_mode, found.filter_options) == ("transactions", "tombstone", {})


@pytest.mark.parametrize("name", ["acme", "a/b/c", "", "../x", "a/..", "a/", "/a/b"])
def test_names_that_are_none_lead_nowhere(policies, name):
    with pytest.raises((OptionError, InvalidKeyError)):
        policies.namespace(name)


def test_a_record_that_is_none_is_told_with_its_path(store, policies):
    store.put("/admin/policies/acme/n", b"nonsense", None)
    with pytest.raises(MetadataError, match="/admin/policies/acme/n"):
        policies.resolve(TOPIC)


# --- what was wrong before -----------------------------------------------------------------------

GONE = {"managedLedgerOffloadDriver": "aliyun-oss", "managedLedgerOffloadBucket": "b"}
"""A driver that is not installed."""


def put(store, path, record):
    store.put(path, record if isinstance(record, bytes) else json.dumps(record).encode(), None)


def test_a_driver_that_is_gone_blocks_no_other_change(store, policies):
    put(store, "/admin/policies/acme/n", {"offload_policies": GONE})
    put(store, "/admin/topic-policies/acme/n/persistent/orders", {"offloadPolicies": GONE})
    policies.change_namespace("acme/n", lambda level: level.with_fields(threshold_in_bytes=5))
    policies.change_topic(TOPIC, lambda level: level.with_fields(threshold_in_bytes=6))
    assert policies.resolve(TOPIC).offload.threshold_bytes == 6
    policies.remove_from_topic(TOPIC, "offload")
    with pytest.raises(UnknownPluginError):
        policies.change_topic(TOPIC, lambda level: level.with_fields(driver="tencent-cos"))
    policies.change_namespace("acme/n", lambda level: level.with_fields(driver="s3"))
    assert policies.resolve(TOPIC).offload.driver == "s3"


def test_a_threshold_that_was_outrun_before_blocks_no_other_change(store, policies):
    late = {"managedLedgerOffloadThresholdInSeconds": 3600}
    hour = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    put(store, "/admin/policies/acme/n", {"offload_policies": late, "retention_policies": hour})
    put(store, "/admin/topic-policies/acme/n/persistent/orders", {"offloadPolicies": late})
    policies.change_namespace("acme/n", lambda level: level.with_fields(max_threads=5))
    policies.remove_from_topic(TOPIC, "offload")  # the same threshold holds afterwards
    for seconds in (3601, 7200):
        with pytest.raises(OptionError, match=f"found managedLedgerOffloadThresholdInSeconds = {seconds}"):
            policies.change_namespace(
                "acme/n", lambda level, seconds=seconds: level.with_fields(threshold_in_seconds=seconds)
            )
    policies.change_namespace("acme/n", lambda level: level.with_fields(threshold_in_seconds=3599))


def test_what_cannot_be_read_is_removed(store, policies):
    broken, kept = {"managedLedgerOffloadMaxThreads": "many"}, {"bundles": {"numBundles": 4}}
    put(store, "/admin/policies/acme/n", {"offload_policies": broken, **kept})
    put(store, "/admin/topic-policies/acme/n/persistent/orders", b"nonsense")
    with pytest.raises(MetadataError, match="/admin/topic-policies/acme/n/persistent/orders"):
        policies.topic(TOPIC)
    with pytest.raises(MetadataError, match="/admin/policies/acme/n"):
        policies.change_namespace("acme/n", lambda level: level.with_fields(max_threads=5))
    policies.remove_from_topic(TOPIC, "offload")
    policies.remove_from_namespace("acme/n", "offload")
    assert {path: json.loads(data) for path, (data, _) in store.metadata.records.items()} == {
        "/admin/policies/acme/n": kept
    }
    policies.remove_from_topic(TOPIC, "retention")
    policies.remove_from_namespace("acme/n", "retention")


def test_a_record_that_cannot_be_read_blocks_no_change_of_another(store, policies, caplog):
    put(store, "/admin/topic-policies/acme/n/persistent/orders", b"nonsense")
    put(store, "/admin/policies/acme/m", b"nonsense")
    policies.change_namespace("acme/n", lambda level: level.with_fields(max_threads=5))
    policies.change_topic(parse_topic("acme/m/t"), lambda level: level.with_fields(max_threads=5))
    assert "/admin/topic-policies/acme/n/persistent/orders" in caplog.text
    assert "/admin/policies/acme/m" in caplog.text


def test_removing_is_refused_where_it_would_let_retention_outrun_a_threshold(policies):
    hour, for_ever = (RetentionPolicies(time_in_minutes=minutes, size_in_mb=-1) for minutes in (60, -1))
    policies.change_namespace("acme/n", lambda level: replace(level, retention=hour))
    policies.change_topic(
        TOPIC, lambda level: replace(level, retention=for_ever).with_fields(threshold_in_seconds=3600)
    )
    with pytest.raises(OptionError, match="retention would delete"):
        policies.remove_from_topic(TOPIC, "retention")


# --- many at once, and stores that fail --------------------------------------------------------


@pytest.mark.parametrize("fault", ["unknown-before", "unknown-after"])
def test_an_answer_that_was_lost_loses_no_change(fault):
    store = FaultyMetadataStore(MemoryMetadataStore())
    policies = PolicyStore(store)
    policies.change_namespace("acme/n", lambda level: level.with_fields(max_threads=2))
    lost = iter([fault])
    store.choose = lambda call: next(lost, None) if call.method == "put" else None
    policies.change_namespace("acme/n", lambda level: level.with_fields(bucket="b"))
    assert policies.namespace("acme/n").offload == parse_policies({"max_threads": 2, "bucket": "b"})


def test_an_outcome_that_stays_unknown_is_said():
    store = FaultyMetadataStore(
        MemoryMetadataStore(), lambda c: "unknown-before" if c.method == "put" else None
    )
    with pytest.raises(OutcomeUnknownError):
        PolicyStore(store).change_namespace("acme/n", lambda level: level.with_fields(bucket="b"))


@pytest.fixture(params=["sqlite", "zk"])
def real_store(request, tmp_path):
    options: dict[str, object] = {"create": True} if request.param == "sqlite" else {}
    if request.param == "sqlite":
        url = f"sqlite:{tmp_path}/metadata.db"
    else:
        server = request.getfixturevalue("zookeeper")
        url = f"zk://{server.host}:{server.port}/policies-{next(_numbers)}"
    with closing(open_metadata_store(url, options)) as store:
        yield store


@pytest.mark.long
def test_changes_by_many_are_all_kept(real_store):
    policies = PolicyStore(real_store)
    fields = ("max_threads", "read_threads", "prefetch_rounds", "threshold_in_bytes")

    def change(field):
        for number in range(1, 6):
            policies.change_namespace("acme/n", partial(LevelPolicies.with_fields, **{field: number}))

    together([partial(change, field) for field in fields], deadline_s=60)
    assert policies.namespace("acme/n").offload == parse_policies(dict.fromkeys(fields, 5))
