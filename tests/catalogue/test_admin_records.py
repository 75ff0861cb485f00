"""Records from a broker's admin REST: golden answers over a real socket, and answers that no broker should give."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest
from entries import LedgerPart, streaming_object
from golden import COLUMNS, TOPICS, assert_topic_is_as_expected, topic_objects
from mapfiles import FILESYSTEM, FILESYSTEM_TOPICS, lay_out_golden
from network.admin import (
    AdminRest,
    golden_answers,
    ledger,
    namespace_answers,
    raises_without,
    reason,
    topic_answers,
)
from network.fronts import Answer
from records import MANAGED_LEDGERS
from tiers import Names, lay_out, put_broker_objects, uuid_of

from offload_core.metadata.catalogue import Problem, TopicName
from offload_core.metadata.catalogue.admin_records import AdminRecords, join_record
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records import ReadPriority
from offload_core.storage.tier import open_store
from offload_hooks.errors import (
    AccessDeniedError,
    DataLossError,
    MetadataError,
    OptionError,
    UnknownTopicError,
)
from pulsar_offload import open_tier, scan

NAMELESS = Names(managed_ledger=None)
TOPIC = "acme/cold/orders"
SECRET = "geheim"
NAME = TopicName(f"persistent://{TOPIC}")


@pytest.fixture(scope="module")
def nameless(tmp_path_factory):
    """A tier of what a broker offloaded, without the names of the topics."""
    root = tmp_path_factory.mktemp("nameless")
    with open_store(root) as store:
        put_broker_objects(store, named=False)
    return root


def records_of(answers, **options):
    with AdminRest(answers) as rest, open_tier("/nowhere") as tier:
        return tier.records(rest.url, options)


# --- golden ------------------------------------------------------------------------------------


def test_a_brokers_answers_say_what_its_records_say():
    """Some records were kept later than the answers, so open ledgers differ; and only records name drivers."""
    told = records_of(golden_answers())
    with open_tier("/nowhere") as tier:
        stored = tier.records(MANAGED_LEDGERS)
    assert told.keys() == stored.keys()
    for topic, info in told.items():
        kept = {ledger.ledger_id: ledger for ledger in stored[topic].ledgers if ledger.info.is_closed}
        found = {ledger.ledger_id: ledger for ledger in info.ledgers if ledger.info.is_closed}
        assert found.keys() == kept.keys()
        for ledger_id, record in found.items():
            assert record.info == kept[ledger_id].info
            context, recorded = record.context, kept[ledger_id].context
            assert (context.uuid, context.complete) == (recorded.uuid, recorded.complete)
        hot = info.in_order[-1]
        assert (hot.info.is_closed, hot.info.entries, hot.context) == (False, 0, None)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("topic", sorted(set(TOPICS) - {"chunk"}))
def test_a_topic_is_read_as_pulsars_clients_read_it(nameless, topic, caplog):
    with AdminRest(golden_answers()) as rest, open_tier(nameless) as tier:
        planned = scan(tier, f"acme/cold/{topic}", columns=COLUMNS, records=rest.url)
        assert_topic_is_as_expected((row for batch in planned for row in batch.to_pylist()), topic)
        assert rest.asked == [
            "/persistent/acme/cold",
            f"/persistent/acme/cold/{topic}/internalStats",
            f"/persistent/acme/cold/{topic}/internal-info",
        ]
    assert not [message for message in caplog.messages if "no complete copy" in message]


@pytest.mark.parametrize("topic", FILESYSTEM_TOPICS)
def test_mapfiles_are_found_though_no_answer_names_the_driver(tmp_path, topic):
    lay_out_golden(tmp_path)
    with AdminRest(golden_answers("filesystem")) as rest, open_tier(tmp_path) as tier:
        planned = scan(tier, f"acme/cold/{topic}", columns=COLUMNS, records=rest.url)
        assert_topic_is_as_expected(planned.to_table().to_pylist(), topic, FILESYSTEM)


def test_a_topic_whose_offload_failed_has_nothing_to_read_and_says_so(nameless, caplog):
    with AdminRest(golden_answers()) as rest, open_tier(nameless) as tier:
        assert scan(tier, "acme/cold/chunk", records=rest.url).tasks == ()
    assert caplog.messages == [
        "nothing of persistent://acme/cold/chunk is read: ledger 29 has no complete copy "
        "(e128f708-2707-40f4-ac18-c98b9d161763-ledger-29: by its record this attempt did not finish)"
    ]


def test_the_catalogue_has_the_topics_of_all_namespaces(nameless):
    with AdminRest(golden_answers()) as rest, open_tier(nameless) as tier:
        catalogue = tier.catalogue(records=rest.url)
    assert [topic.label.rpartition("/")[2] for topic in catalogue.topics] == TOPICS
    for topic in catalogue.topics:
        pieces = [extent.key.data_key for ledger in topic.ledgers for extent in ledger.extents]
        assert pieces == [golden.key.data_key for golden in topic_objects(topic.label.rpartition("/")[2])]
    assert [stored.problem for stored in catalogue.problems] == [Problem.UNFINISHED]


# --- which topics are asked for ----------------------------------------------------------------

PARTITIONS = [f"acme/cold/orders-partition-{i}" for i in range(3)]
NAMED = [*PARTITIONS, "acme/cold/orders-else", "acme/hot/orders", "other/cold/orders", "acme/cold/a%2Fb"]


def chosen(**selection):
    """The topics whose records are read, and what was listed."""
    answers = namespace_answers(*NAMED[:-1], "acme/cold/a/b")
    for name in NAMED:
        answers |= topic_answers(name)
    with AdminRest(answers) as rest, open_tier("/nowhere") as tier:
        scan(tier, records=rest.url, **selection)
        read = [
            path.removeprefix("/persistent/")[: -len("/internal-info")]
            for path in rest.asked
            if "-info" in path
        ]
        listed = [path for path in rest.asked if "internal" not in path]
        assert len(rest.asked) == len(listed) + 2 * len(read)
        return sorted(read), sorted(listed)


COLD, HOT = "/persistent/acme/cold", "/persistent/acme/hot"
ALL = ["/namespaces/acme", "/namespaces/other", COLD, HOT, "/persistent/other/cold", "/tenants"]


@pytest.mark.parametrize(
    ("topics", "read", "listed"),
    [
        (TOPIC, PARTITIONS, [COLD]),
        (f"persistent://{PARTITIONS[1]}", [PARTITIONS[1]], [COLD]),
        (["acme/hot/orders", TOPIC], [*PARTITIONS, "acme/hot/orders"], [COLD, HOT]),
        ("persistent://acme/cold/a/b", ["acme/cold/a%2Fb"], [COLD]),
    ],
)
def test_a_name_means_its_partitions_and_only_its_namespace_is_listed(topics, read, listed):
    assert chosen(topics=topics) == (read, listed)


@pytest.mark.parametrize(
    ("pattern", "read", "listed"),
    [
        ("acme/cold/orders.*", [*PARTITIONS, "acme/cold/orders-else"], [COLD]),
        ("persistent://acme/cold/orders(-else|)", [*PARTITIONS, "acme/cold/orders-else"], [COLD]),
        ("acme/cold/orders[-a-z]*", [*PARTITIONS, "acme/cold/orders-else"], [COLD]),
        (".*/cold/orders", [*PARTITIONS, "other/cold/orders"], ALL),
        ("acme/hot/.*|other/.*", ["acme/hot/orders", "other/cold/orders"], ALL),
        (None, ["acme/cold/a%2Fb", *NAMED[:-1]], ALL),
    ],
)
def test_only_a_pattern_that_begins_with_a_namespace_lists_no_others(pattern, read, listed):
    selection = {} if pattern is None else {"topics_pattern": pattern}
    assert chosen(**selection) == (sorted(read), listed)


def test_a_topic_that_is_not_there_is_unknown_and_the_others_are_named():
    with pytest.raises(UnknownTopicError, match=r"no topic persistent://acme/cold/no .*orders-partition-0"):
        chosen(topics="acme/cold/no")
    with pytest.raises(UnknownTopicError, match="none at all"):
        chosen(topics="no/where/no")


@pytest.mark.parametrize(
    "topic", ["../cold/orders", "acme/../orders", "persistent://acme/cold/..", "a b/c/d", "acme/c?d/e"]
)
def test_a_name_that_would_lead_elsewhere_is_not_asked_for(topic):
    with AdminRest({}) as rest, open_tier("/nowhere") as tier:
        with pytest.raises((OptionError, MetadataError, UnknownTopicError)):
            scan(tier, topic, records=rest.url)
        assert set(rest.asked) <= {"/persistent/acme/cold"}


def test_a_topic_that_goes_meanwhile_was_never_there():
    answers = namespace_answers(*PARTITIONS) | topic_answers(PARTITIONS[0]) | topic_answers(PARTITIONS[1])
    del answers[f"/persistent/{PARTITIONS[1]}/internal-info"]
    assert [name.partition for name in records_of(answers)] == [0]


def test_a_namespace_of_pulsar_1_is_left_out_with_a_warning(caplog):
    answers = namespace_answers(TOPIC) | topic_answers(TOPIC)
    answers["/namespaces/acme"] = ["acme/east/old", "acme/cold"]
    assert list(records_of(answers)) == [NAME]
    assert caplog.messages == [
        "the namespace 'acme/east/old' has a cluster in its name: an admin REST cannot be asked of it"
    ]


# --- two answers, one record -------------------------------------------------------------------


def test_order_and_truth_come_from_the_one_answer_and_uuids_from_the_other():
    uuids = [str(uuid_of(i)) for i in range(3)]
    ledgers = [ledger(9, 5, uuids[0]), ledger(3, 7, uuids[1]), ledger(12), ledger(4, 1)]
    info = records_of(namespace_answers(TOPIC) | topic_answers(TOPIC, *ledgers, offloaded=(3,)))[NAME]
    assert [(each.ledger_id, each.info.entries, each.info.is_closed) for each in info.in_order] == [
        (3, 7, True), (4, 1, True), (9, 5, True), (12, 0, False),
    ]  # fmt: skip
    copies = [(each.has_complete_copy, each.context and str(each.context.uuid)) for each in info.in_order]
    assert copies == [(True, uuids[1]), (False, None), (False, uuids[0]), (False, None)]


def test_the_open_ledger_has_the_entries_that_the_broker_counts():
    stats = {"currentLedgerEntries": 4, "ledgers": [{"ledgerId": 7, "entries": 0, "offloaded": False}]}
    info, version = join_record(stats, {"version": 9, "ledgers": [ledger(7)]})
    assert (info.ledgers[0].info.entries, info.ledgers[0].info.is_closed, version) == (4, False, 9)


def test_what_happens_between_the_two_answers_makes_no_ledger_offloaded():
    """A ledger that only the later answer has is new; one that only the earlier one has is trimmed."""
    stats = {
        "currentLedgerEntries": 0,
        "ledgers": [{"ledgerId": number, "entries": 1, "offloaded": number == 3} for number in (2, 3, 5)],
    }
    later = [ledger(3, 1, str(uuid_of(3))), ledger(5, 1, str(uuid_of(5))), ledger(6)]
    info, _ = join_record(stats, {"version": 0, "ledgers": later})
    assert {each.ledger_id: each.has_complete_copy for each in info.ledgers} == {3: True, 5: False, 6: False}


def test_a_streaming_object_is_named_for_what_it_is(tmp_path):
    lay_out(tmp_path, streaming_object([LedgerPart(ledger_id=5, blocks=[[b"a"]])]), attempt=5, names=NAMELESS)
    answers = namespace_answers(TOPIC) | topic_answers(TOPIC, ledger(5, 1, str(uuid_of(5))), offloaded=(5,))
    message = "it is a streaming object, and its record does not tell of segments"
    with AdminRest(answers) as rest, open_tier(tmp_path) as tier, pytest.raises(DataLossError, match=message):
        scan(tier, TOPIC, records=rest.url)


# --- refused -----------------------------------------------------------------------------------

STATS, INFO = topic_answers(TOPIC, ledger(1, 1, str(uuid_of(1))), offloaded=(1,)).values()


def one(answer, **changes):
    return {**answer, "ledgers": [{**answer["ledgers"][0], **changes}]}


@pytest.mark.parametrize(
    ("stats", "info"),
    [
        *itertools.product(([], None, 5, "x", {}, {"ledgers": {}}, {"ledgers": [1]}), (INFO,)),
        *itertools.product((STATS,), ([], {}, {"ledgers": []}, {"ledgers": [None], "version": 1})),
        *((one(STATS, ledgerId=bad), INFO) for bad in (None, -1, "1", 1.5, True, 1 << 63)),
        *((one(STATS, offloaded=bad), INFO) for bad in (None, 1, "true")),
        *((STATS, one(INFO, ledgerId=bad)) for bad in (None, -1, "1", True)),
        *((STATS, one(INFO, entries=bad)) for bad in (None, -1, "1", [])),
        *((STATS, one(INFO, size=bad)) for bad in (None, -5)),
        *((STATS, one(INFO, timestamp=bad)) for bad in (None, "now")),
        *((STATS, one(INFO, offloadedContextUuid=bad)) for bad in ("", "x", 5, {})),
        (STATS, one(INFO, offloadedContextUuid=None)),
        (STATS, INFO | {"version": None}),
        (STATS, INFO | {"ledgers": INFO["ledgers"] * 2}),
        (STATS | {"currentLedgerEntries": None}, INFO),
    ],
)
def test_answers_of_another_form_are_errors(stats, info):
    with pytest.raises(MetadataError):
        join_record(stats, info)


def test_an_answer_of_another_form_names_its_place():
    answers = namespace_answers(TOPIC) | topic_answers(TOPIC)
    answers[f"/persistent/{TOPIC}/internalStats"] = {"ledgers": "x" * 1000}
    with pytest.raises(
        MetadataError, match=rf"another form \(object /admin/v2/persistent/{TOPIC}\)"
    ) as caught:
        records_of(answers)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("path", "listed"),
    [
        *((COLD, listed) for listed in ({}, "acme", [1])),
        *((COLD, [f"{name}"]) for name in ("persistent://other/cold/a", "persistent://acme/cold/")),
        (COLD, ["non-persistent://acme/cold/a"]),
        *(("/namespaces/acme", [name]) for name in ("../x", "other/ns", "acme/a/b/c", "acme/..", "acme")),
    ],
)
def test_listings_of_another_form_are_errors(path, listed):
    with pytest.raises(MetadataError, match="another form"):
        records_of(namespace_answers(TOPIC) | {path: listed})


def test_a_refused_token_is_denied_and_not_shown():
    answers = {"/tenants": reason(401, "Authentication required")}
    with raises_without(SECRET, AccessDeniedError, match="found 401: Authentication required"):
        records_of(answers, token=SECRET)


def test_options_are_checked():
    for options in (
        {"tokn": "x"}, {"timeout_s": "soon"}, {"attempts": "0"}, {"ca_bundle": "/x"}, {"token": f"{SECRET}\x01"},
    ):  # fmt: skip
        with raises_without(SECRET, OptionError):
            records_of({}, **options)
    assert AdminRecords("http://a", timeout_s="5", attempts="2").children("/managed-ledgers/t/n/x") == []
    with pytest.raises(OptionError, match="managed ledgers only"):
        AdminRecords("http://a").get("/ledgers/1")


def test_options_are_of_no_use_with_records_that_are_given():
    with open_tier("/nowhere") as tier, pytest.raises(OptionError, match="of no use"):
        tier.records({}, {"token": "x"})


# --- policies ----------------------------------------------------------------------------------

OF_TOPIC, OF_NAMESPACE = f"/persistent/{TOPIC}/offloadPolicies", "/namespaces/acme/cold/offloadPolicies"
HOT_FIRST = {"managedLedgerOffloadedReadPriority": "BOOKKEEPER_FIRST", "offloadersDirectory": "./offloaders"}
COLD_FIRST = {"managedLedgerOffloadedReadPriority": "TIERED_STORAGE_FIRST"}


@pytest.mark.parametrize(
    ("answers", "priority", "asks"),
    [
        ({OF_TOPIC: HOT_FIRST, OF_NAMESPACE: COLD_FIRST}, "BOOKKEEPER_FIRST", 1),
        ({OF_TOPIC: {}, OF_NAMESPACE: HOT_FIRST}, "BOOKKEEPER_FIRST", 2),
        ({OF_TOPIC: Answer(status=200), OF_NAMESPACE: HOT_FIRST}, "BOOKKEEPER_FIRST", 2),
        ({OF_TOPIC: Answer(status=204), OF_NAMESPACE: COLD_FIRST}, "OFFLOADED_FIRST", 2),
        (
            {OF_TOPIC: reason(405, "Topic level policies is disabled"), OF_NAMESPACE: HOT_FIRST},
            "BOOKKEEPER_FIRST",
            2,
        ),
        ({OF_NAMESPACE: Answer(status=204)}, None, 2),
    ],
)
def test_the_read_priority_is_that_of_policies_which_a_broker_tells(answers, priority, asks):
    with AdminRest(answers) as rest, closing(AdminRecords(rest.url)) as store:
        found = StoreRecords(store).read_priority(TopicName(f"persistent://{TOPIC}"))
    assert (None if found is None else found.name) == priority
    assert rest.asked == [OF_TOPIC, OF_NAMESPACE][:asks]


def test_policies_of_a_partition_are_those_of_its_topic():
    with AdminRest({OF_TOPIC: HOT_FIRST}) as rest, closing(AdminRecords(rest.url)) as store:
        found = StoreRecords(store).read_priority(TopicName(f"persistent://{TOPIC}-partition-3"))
    assert found is ReadPriority.BOOKKEEPER_FIRST


def test_policies_that_are_not_shown_count_as_none(caplog):
    denied = {OF_TOPIC: reason(403, "no"), OF_NAMESPACE: reason(401, "no")}
    with AdminRest(denied) as rest, closing(AdminRecords(rest.url)) as store:
        assert StoreRecords(store).read_priority(TopicName(f"persistent://{TOPIC}")) is None
    assert len([each for each in caplog.messages if "not shown" in each]) == 2


@pytest.mark.parametrize("answer", [["x"], {"managedLedgerOffloadedReadPriority": "LAST"}])
def test_policies_that_make_no_sense_are_an_error(answer):
    with (
        AdminRest({OF_TOPIC: answer}) as rest,
        closing(AdminRecords(rest.url)) as store,
        pytest.raises(MetadataError),
    ):
        StoreRecords(store).read_priority(TopicName(f"persistent://{TOPIC}"))
