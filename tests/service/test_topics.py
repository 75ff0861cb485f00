"""Topics as the service tells of them: what a broker told of the same records, and what pulsar-admin shows."""

import json
from contextlib import closing
from dataclasses import replace

import pytest
from golden import BROKER
from live.clients import PulsarShell
from records import closed, copied, managed_ledger, position, still_open
from service import Service
from tiers import uuid_of

from offload_core.interfaces.service.served_topics import info_to_json, stats_to_json
from offload_core.metadata.catalogue.admin_records import AdminRecords, join_record
from offload_core.metadata.records import ManagedLedgerInfo, parse_stored_record
from offload_core.metadata.stores import ManagedLedgerRecords, VersionedInfo, open_metadata_store
from offload_core.metadata.stores.record_paths import list_names, read_record
from offload_hooks.ledger_stores import LedgerStatus

RECORDS = sorted(BROKER.glob("managed-ledgers/**/*.val"))
NOW_MS = 1_800_000_000_000
DATES = ("creationDate", "modificationDate")


def stored(path):
    record = parse_stored_record(path.read_bytes())
    return VersionedInfo(info=record.info, version=record.standalone.version)


def answers(topic, *names):
    files = (BROKER / "topics" / topic / f"{name}.json" for name in names)
    return [json.loads(file.read_text()) for file in files if file.is_file()]


def undated(info):
    """An answer without the dates that our stores do not have, and the time of the question."""
    ledgers = sorted(info["ledgers"], key=lambda ledger: int(ledger["ledgerId"]))
    times = [ledger | ({} if "entries" in ledger else {"timestamp": NOW_MS}) for ledger in ledgers]
    return {name: value for name, value in info.items() if name not in DATES} | {"ledgers": times}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_internal_info_is_what_the_broker_told_of_the_same_record(path):
    record = stored(path)
    told = answers(path.stem, "internal-info", "internal-info-after-bk-delete")
    for expected in (undated(each) for each in told if each["version"] == record.version):
        assert undated(info_to_json(record, NOW_MS)) == expected


def test_records_and_answers_of_the_same_version_are_there():
    versions = {path.stem: stored(path).version for path in RECORDS}
    told = {
        topic: {each["version"] for each in answers(topic, "internal-info", "internal-info-after-bk-delete")}
        for topic in versions
    }
    assert sum(version in told[topic] for topic, version in versions.items()) >= 5


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_internal_stats_are_what_the_broker_told(path):
    found = stats_to_json(stored(path).info)
    for expected in answers(path.stem, "internalStats"):
        live = {"lastLedgerCreatedTimestamp", "schemaLedgers", "compactedLedger", "cursors", "ledgers"}
        if expected["currentLedgerEntries"]:
            continue
        assert {k: v for k, v in found.items() if k not in live} == {
            k: v for k, v in expected.items() if k not in live
        } | {"waitingCursorsCount": 0}
        fields = ("ledgerId", "entries", "size", "offloaded")
        ours, brokers = (
            [[each[field] for field in fields] for each in told["ledgers"] if each["entries"]]
            for told in (found, expected)
        )
        assert ours == brokers
        assert set(found["compactedLedger"]) == set(expected["compactedLedger"]) - {"metadata"}


@pytest.mark.parametrize(
    ("info", "state", "last"),
    [
        (ManagedLedgerInfo(), "ClosedLedger", "-1:-1"),
        (managed_ledger(still_open(12)), "LedgerOpened", "12:-1"),
        (managed_ledger(closed(3, 5), still_open(4)), "LedgerOpened", "3:4"),
        (managed_ledger(closed(4, 2), closed(3, 5)), "ClosedLedger", "4:1"),
        (
            replace(managed_ledger(closed(3, 5), still_open(4)), terminated_at=position(4, 2)),
            "Terminated",
            "4:2",
        ),
    ],
)
def test_a_topics_state_and_end(info, state, last):
    found = stats_to_json(info)
    assert (found["state"], found["lastConfirmedEntry"]) == (state, last)


def test_the_open_ledger_counts_as_the_hot_tier_has_it():
    written = LedgerStatus(
        ledger_id=4, entry_count=3, size_bytes=50, sealed=False, created_at_ms=0, custom_metadata={}
    )
    record = managed_ledger(closed(3, 5), still_open(4))
    alone, found = stats_to_json(record), stats_to_json(record, written)
    assert {name: found[name] for name in found if found[name] != alone[name]} == {
        "numberOfEntries": 8,
        "totalSize": alone["totalSize"] + 50,
        "currentLedgerEntries": 3,
        "currentLedgerSize": 50,
        "lastConfirmedEntry": "4:2",
    }


# --- served ------------------------------------------------------------------------------------

NAME = "acme/cold/persistent/orders+%2F1"
TOPIC = "persistent://acme/cold/orders /1"
PATHS = [f"/admin/v2/persistent/acme/cold/orders{space}%2F1" for space in ("+", "%20")]
INFO = replace(
    managed_ledger(closed(3, 2), closed(4, 9, copied(uuid_of(4))), still_open(5)), properties=(("a", "b"),)
)


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    with Service(tmp_path_factory.mktemp("topics")) as running:
        with closing(open_metadata_store(running.metadata)) as store:
            records = ManagedLedgerRecords(store)
            records.write(NAME, INFO, None)
            records.write("acme/cold/persistent/plain", INFO, None)
            records.write("other/ns/persistent/t-partition-0", ManagedLedgerInfo(), None)
        yield running


def test_topics_are_listed(topics):
    assert topics.ask("GET", "/admin/v2/tenants").json == ["acme", "other"]
    assert topics.ask("GET", "/admin/v2/namespaces/acme").json == ["acme/cold"]
    listed = topics.ask("GET", "/admin/v2/persistent/acme/cold?includeSystemTopic=true").json
    assert listed == [TOPIC, "persistent://acme/cold/plain"]
    assert topics.ask("GET", "/admin/v2/persistent/acme/none").json == []


def test_namespaces_with_policies_only_are_listed_too(topics):
    assert topics.ask("PUT", "/admin/v2/namespaces/third/said/offloadThreshold", 5).status == 204
    assert "third" in topics.ask("GET", "/admin/v2/tenants").json
    assert topics.ask("GET", "/admin/v2/namespaces/third").json == ["third/said"]
    assert topics.ask("DELETE", "/admin/v2/namespaces/third/said/offloadPolicies").status == 204
    assert topics.ask("GET", "/admin/v2/namespaces/third").json == []


def test_a_namespaces_topics_and_partitions(topics):
    assert topics.ask("GET", "/admin/v2/namespaces/acme/cold/topics").json == [
        TOPIC,
        "persistent://acme/cold/plain",
    ]
    assert topics.ask("GET", "/admin/v2/namespaces/acme/cold/topics?mode=NON_PERSISTENT").json == []
    assert topics.ask("GET", "/admin/v2/persistent/other/ns/partitioned").json == ["persistent://other/ns/t"]
    assert topics.ask("GET", "/admin/v2/persistent/acme/cold/partitioned").json == []
    for path, partitions in (("t", 1), ("t-partition-0", 0)):
        answer = topics.ask("GET", f"/admin/v2/persistent/other/ns/{path}/partitions")
        assert answer.json == {"partitions": partitions, "deleted": False}
    assert topics.ask("GET", f"{PATHS[0]}/partitions").json == {"partitions": 0, "deleted": False}
    none = topics.ask("GET", "/admin/v2/persistent/other/ns/none/partitions")
    assert (none.status, none.json) == (404, {"reason": "Topic persistent://other/ns/none not found"})


def test_where_no_tier_is_named_there_are_no_schemas(topics):
    answer = topics.ask("GET", "/admin/v2/schemas/acme/cold/plain/schema")
    assert (answer.status, answer.json) == (404, {"reason": "Schema not found"})


def test_all_that_a_namespace_says_is_told_in_one_answer(topics):
    path, kept = "/admin/v2/namespaces/acme/told", {"retentionTimeInMinutes": 7, "retentionSizeInMB": 8}
    none = topics.ask("GET", path)
    assert (none.status, none.json) == (404, {"reason": "Namespace does not exist"})
    assert topics.ask("GET", "/admin/v2/namespaces/acme/cold").json == {}
    with closing(open_metadata_store(topics.metadata)) as store:
        store.put("/admin/policies/acme/told", b'{"bundles": {"numBundles": 4}}', None)
    topics.ask("POST", f"{path}/retention", kept)
    topics.ask(
        "POST",
        f"{path}/offloadPolicies",
        {"managedLedgerOffloadBucket": "b", "s3ManagedLedgerOffloadCredentialSecret": "hunter2"},
    )
    assert topics.ask("GET", path).json == {
        "bundles": {"numBundles": 4},
        "offload_policies": {
            "managedLedgerOffloadBucket": "b",
            "s3ManagedLedgerOffloadCredentialSecret": "********",
        },
        "retention_policies": kept,
    }


@pytest.mark.parametrize("path", PATHS)
def test_the_two_answers_make_the_record_again(topics, path):
    stats = topics.ask("GET", f"{path}/internalStats?metadata=false").json
    info = topics.ask("GET", f"{path}/internal-info").json
    joined, _ = join_record(stats, info)
    entries = {ledger.ledger_id: ledger.info.entries or 0 for ledger in joined.ledgers}
    assert entries == {3: 2, 4: 9, 5: 0}
    assert [ledger.has_complete_copy for ledger in joined.ledgers] == [False, True, False]
    assert joined.ledgers[1].context.uuid == uuid_of(4)
    assert info["properties"] == {"a": "b"}


def test_our_own_reader_of_a_broker_reads_them(topics):
    with closing(AdminRecords(topics.url)) as records:
        assert set(list_names(records)) == {
            NAME,
            "acme/cold/persistent/plain",
            "other/ns/persistent/t-partition-0",
        }
        found = read_record(records, NAME)
    assert found is not None
    assert [ledger.has_complete_copy for ledger in found[0].ledgers] == [False, True, False]


def test_a_topic_that_there_is_not_is_told(topics):
    reason = {"reason": "Topic persistent://acme/cold/none not found"}
    for what in ("internalStats", "internal-info"):
        answer = topics.ask("GET", f"/admin/v2/persistent/acme/cold/none/{what}")
        assert (answer.status, answer.json) == (404, reason)


@pytest.mark.nightly
@pytest.mark.server
def test_pulsar_admin_shows_them(topics, distribution, tmp_path):
    plain = "persistent://acme/cold/plain"
    listed, stats, info = PulsarShell(tmp_path, topics.url).run(
        ["topics list acme/cold", f"topics stats-internal {plain}", f"topics info-internal {plain}"]
    )
    assert set(listed.splitlines()) == {TOPIC, plain}
    shown = json.loads(stats)
    assert (shown["numberOfEntries"], shown["lastConfirmedEntry"]) == (11, "4:8")
    assert [ledger["offloaded"] for ledger in shown["ledgers"]] == [False, True, False]
    assert json.loads(info)["ledgers"][1]["offloadedContextUuid"] == str(uuid_of(4))
