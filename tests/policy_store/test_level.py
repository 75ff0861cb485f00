"""Records of policies: as a broker has them, with what is not known here kept, and what is no record refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.metadata.policies import RetentionPolicies, parse_policies
from offload_core.metadata.policies.level import (
    NAMESPACE_NAMES,
    TOPIC_NAMES,
    LevelPolicies,
    level_without,
    pack_level,
    parse_level,
    parse_retention,
)
from offload_core.metadata.records import ReadPriority
from offload_hooks.errors import MetadataError, OptionError

# What a broker (4.0.8) answered to GET /admin/v2/namespaces/acme/o, shortened by empty maps.
BROKERS = """{"auth_policies":{"namespace_auth":{},"destination_auth":{},"subscription_auth_roles":{}},
"replication_clusters":["standalone"],"bundles":{"boundaries":["0x00000000","0xffffffff"],"numBundles":1},
"deleted":false,"encryption_required":false,"subscription_auth_mode":"None","offload_threshold":-1,
"offload_threshold_in_seconds":-1,"schema_compatibility_strategy":"UNDEFINED","is_allow_auto_update_schema":true,
"offload_policies":{"offloadersDirectory":"./offloaders","managedLedgerOffloadDriver":"aws-s3",
"managedLedgerOffloadMaxThreads":2,"managedLedgerOffloadReadThreads":2,"managedLedgerOffloadPrefetchRounds":1,
"managedLedgerOffloadedReadPriority":"TIERED_STORAGE_FIRST","managedLedgerExtraConfigurations":{},
"s3ManagedLedgerOffloadMaxBlockSizeInBytes":67108864,"s3ManagedLedgerOffloadReadBufferSizeInBytes":1048576,
"s3ManagedLedgerOffloadRoleSessionName":"pulsar-s3-offload","gcsManagedLedgerOffloadMaxBlockSizeInBytes":134217728,
"gcsManagedLedgerOffloadReadBufferSizeInBytes":1048576,"managedLedgerOffloadBucket":"b","s3Driver":true,
"gcsDriver":false,"fileSystemDriver":false},"retention_policies":{"retentionTimeInMinutes":180,
"retentionSizeInMB":1024},"subscription_types_enabled":[],"properties":{},"migrated":false}"""


def test_a_brokers_record_is_understood_and_written_back():
    level = parse_level(BROKERS.encode(), NAMESPACE_NAMES)
    assert level.offload is not None
    assert (level.offload.driver, level.offload.bucket) == ("aws-s3", "b")
    assert level.offload.offloaded_read_priority is ReadPriority.OFFLOADED_FIRST
    assert level.offload.threshold_in_bytes is None
    assert level.retention == RetentionPolicies(time_in_minutes=180, size_in_mb=1024)
    expected = json.loads(BROKERS)
    for derived in ("s3Driver", "gcsDriver", "fileSystemDriver"):
        del expected["offload_policies"][derived]
    for unset in ("offload_threshold", "offload_threshold_in_seconds"):
        del expected[unset]
    assert json.loads(pack_level(level, NAMESPACE_NAMES)) == expected


def test_values_by_their_older_names_count_where_the_policies_say_nothing():
    record = {
        "offload_threshold": 5,
        "offload_threshold_in_seconds": 6,
        "offload_deletion_lag_ms": 7,
        "offload_policies": {
            "managedLedgerOffloadThresholdInBytes": 8,
            "managedLedgerOffloadThresholdInSeconds": None,
        },
    }
    level = parse_level(json.dumps(record).encode(), NAMESPACE_NAMES)
    said = parse_policies({"threshold_in_bytes": 8, "threshold_in_seconds": 6, "deletion_lag_in_millis": 7})
    assert level.offload == said
    assert parse_level(b'{"offload_deletion_lag_ms": 7}', NAMESPACE_NAMES).offload == parse_policies(
        {"deletion_lag_in_millis": 7}
    )
    assert set(json.loads(pack_level(level, NAMESPACE_NAMES))) == {"offload_policies"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("names", [NAMESPACE_NAMES, TOPIC_NAMES], ids=["namespace", "topic"])
@given(others=st.dictionaries(st.text(max_size=8), JSON, max_size=4), inside=st.dictionaries(st.text(), JSON))
def test_what_is_not_known_is_kept(names, others, inside):
    inside = {f"new{name}": value for name, value in inside.items() if value is not None}
    record = others | {names.offload: {"managedLedgerOffloadDriver": "s3", **inside}}
    level = parse_level(json.dumps(record).encode(), names)
    assert level.offload == parse_policies({"driver": "s3"})
    assert json.loads(pack_level(level, names)) == record
    assert parse_level(pack_level(level, names), names) == level


def test_who_says_nothing_has_no_record():
    assert pack_level(LevelPolicies(), TOPIC_NAMES) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"offload_policies": 3}',
        b'{"offload_policies": [1]}',
        b'{"retention_policies": 3}',
        b'{"retention_policies": {"retentionTimeInMinutes": "x"}}',
        b'{"offload_policies": {"managedLedgerOffloadMaxThreads": "many"}}',
        b'{"offload_threshold": "x"}',
    ],
)
def test_what_is_no_record_is_refused(data):
    with pytest.raises(MetadataError, match="a record of policies"):
        parse_level(data, NAMESPACE_NAMES)


def test_a_part_is_taken_out_of_a_record_whatever_it_and_the_other_are():
    sound, broken = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}, {"retentionTimeInMinutes": "x"}
    bad = {"managedLedgerOffloadMaxThreads": "many"}
    record = {"bundles": 1, "offload_policies": bad, "offload_threshold": 3, "retention_policies": sound}
    left = level_without(json.dumps(record).encode(), NAMESPACE_NAMES, "offload")
    assert left == LevelPolicies(
        retention=RetentionPolicies(time_in_minutes=5, size_in_mb=6), others={"bundles": 1}
    )
    left = level_without(json.dumps(record).encode(), NAMESPACE_NAMES, "retention")
    del record["retention_policies"]
    assert json.loads(pack_level(left, NAMESPACE_NAMES)) == record
    both = json.dumps({"offload_policies": bad, "retention_policies": broken}).encode()
    left = level_without(both, NAMESPACE_NAMES, "offload")
    assert json.loads(pack_level(left, NAMESPACE_NAMES)) == {"retention_policies": broken}
    for part in ("offload", "retention"):
        assert level_without(b"nonsense", TOPIC_NAMES, part) == LevelPolicies()


def test_one_value_is_changed_beside_what_nobody_may_set():
    data = b'{"offload_policies": {"managedLedgerOffloadBucket": "", "managedLedgerOffloadMaxThreads": 3}}'
    changed = parse_level(data, NAMESPACE_NAMES).with_fields(max_threads=4)
    assert json.loads(pack_level(changed, NAMESPACE_NAMES)) == json.loads(data.replace(b"3", b"4"))
    with pytest.raises(OptionError, match="region is empty"):
        changed.with_fields(region="")


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"retentionTimeInMinutes": -5, "retentionSizeInMB": 1}, "retentionTimeInMinutes"),
        ({"retentionTimeInMinutes": 0, "retentionSizeInMB": 1}, "0 minutes, 1 MB"),
        ({"retentionTimeInHours": 1}, "retentionTimeInHours"),
    ],
)
def test_a_retention_that_pulsar_refuses_is_refused(given_, message):
    with pytest.raises(OptionError, match=message):
        parse_retention(given_, "namespace acme/n")
