"""Which topics a scan reads: by name, by pattern, or one ledger."""

import pytest
from entries import WrittenObject, pip17_object
from tiers import MODIFIED_AT, uuid_of

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue import Catalogue, StoredObject
from offload_core.metadata.catalogue.model import build_catalogue
from offload_core.reading.scan import Selection, select_topics
from offload_hooks.errors import OptionError, UnknownLedgerError, UnknownTopicError


def stored(number, ledger_id, name, cluster="east"):
    written: WrittenObject = pip17_object([b"payload"], ledger_id=ledger_id)
    return StoredObject(
        key=ObjectKey(folder="", uuid=uuid_of(number), ledger_id=ledger_id, is_index=False),
        cluster=cluster,
        managed_ledger=name,
        data_bytes=len(written.data),
        index_bytes=len(written.index),
        modified_at=MODIFIED_AT,
        index=parse_index(written.index, written.key),
    )


CATALOGUE: Catalogue = build_catalogue(
    [
        stored(0, 1, "acme/cold/persistent/orders"),
        stored(1, 2, "acme/cold/persistent/orders"),
        stored(2, 3, "acme/cold/persistent/parts-partition-0"),
        stored(3, 4, "acme/cold/persistent/parts-partition-1"),
        stored(4, 5, "acme/hot/persistent/a%2Fb"),
        stored(5, 5, "acme/hot/persistent/twin", "east"),
        stored(6, 6, "acme/hot/persistent/twin", "west"),
        stored(7, 7, None),
        stored(8, 1, None),
    ]
)


def labels(**selection):
    return [
        f"{topic.label.removeprefix('persistent://')}@{topic.cluster}"
        for topic in select_topics(CATALOGUE, Selection(**selection))
    ]


def test_a_topic_is_found_by_each_form_of_its_name():
    for name in ("acme/cold/orders", "persistent://acme/cold/orders", "acme/cold/persistent/orders"):
        assert labels(topics=(name,)) == ["acme/cold/orders@east"]


def test_a_topic_with_a_slash_is_found_by_the_name_that_is_shown():
    assert labels(topics=("persistent://acme/hot/a/b",)) == ["acme/hot/a/b@east"]


def test_a_partitioned_topics_name_stands_for_all_its_partitions():
    assert labels(topics=("acme/cold/parts",)) == [
        "acme/cold/parts-partition-0@east",
        "acme/cold/parts-partition-1@east",
    ]
    assert labels(topics=("acme/cold/parts-partition-1",)) == ["acme/cold/parts-partition-1@east"]


def test_several_topics_come_in_the_catalogues_order_and_once():
    names = ("acme/cold/parts-partition-1", "acme/cold/orders", "acme/cold/parts")
    assert labels(topics=names) == [
        "acme/cold/orders@east",
        "acme/cold/parts-partition-0@east",
        "acme/cold/parts-partition-1@east",
    ]


def test_without_a_choice_all_topics_that_have_a_name_are_read():
    assert labels(cluster="east") == [
        "acme/cold/orders@east",
        "acme/cold/parts-partition-0@east",
        "acme/cold/parts-partition-1@east",
        "acme/hot/a/b@east",
        "acme/hot/twin@east",
    ]


def test_a_cluster_tells_topics_and_ledgers_of_one_name_apart():
    assert labels(cluster="west") == ["acme/hot/twin@west"]
    assert labels(cluster="west", topics=("acme/hot/twin",)) == ["acme/hot/twin@west"]
    assert labels(cluster="east", topics_pattern=".*twin") == ["acme/hot/twin@east"]
    assert labels(cluster="north") == []
    with pytest.raises(UnknownLedgerError):
        labels(cluster="west", ledger_id=5)


@pytest.mark.parametrize("selection", [{}, {"topics_pattern": ".*twin"}, {"topics": ("acme/hot/twin",)}])
def test_topics_of_one_name_are_never_read_as_one(selection):
    match = "two clusters have offloaded a topic persistent://acme/hot/twin"
    with pytest.raises(OptionError, match=match) as caught:
        labels(**selection)
    assert (caught.value.found, caught.value.hint) == ("east, west", "Name the cluster as well.")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("acme/cold/.*", ["orders", "parts-partition-0", "parts-partition-1"]),
        ("persistent://acme/cold/o.*", ["orders"]),
        (".*/parts", ["parts-partition-0", "parts-partition-1"]),
        (".*-partition-1", ["parts-partition-1"]),
        ("acme/cold/order", []),
        ("cold/orders", []),
        ("", []),
    ],
)
def test_a_pattern_must_match_a_whole_name_or_its_base(pattern, found):
    assert labels(topics_pattern=pattern) == [f"acme/cold/{name}@east" for name in found]


def test_an_unknown_topic_is_refused_with_those_that_are_known():
    with pytest.raises(UnknownTopicError) as caught:
        labels(topics=("acme/cold/orders", "acme/cold/order"))
    assert str(caught.value) == (
        "no topic persistent://acme/cold/order has offloaded data here: expected one of "
        "persistent://acme/cold/orders, persistent://acme/cold/parts-partition-0, "
        "persistent://acme/cold/parts-partition-1, persistent://acme/hot/a/b, persistent://acme/hot/twin, "
        "persistent://acme/hot/twin, found persistent://acme/cold/order"
    )


def test_of_many_known_topics_ten_are_named():
    many = build_catalogue(stored(i, i, f"a/b/persistent/t{i:02}") for i in range(12))
    with pytest.raises(UnknownTopicError) as caught:
        select_topics(many, Selection(topics=("a/b/c",)))
    names = ", ".join(f"persistent://a/b/t{i:02}" for i in range(10))
    assert caught.value.expected == f"one of {names} and 2 more"


def test_an_empty_tier_knows_no_topic():
    with pytest.raises(UnknownTopicError, match="expected one of none at all"):
        select_topics(build_catalogue([]), Selection(topics=("a/b/c",)))
    assert select_topics(build_catalogue([]), Selection(topics=("a/b/c",), may_be_absent=True)) == []


@pytest.mark.parametrize(
    ("selection", "message", "found"),
    [
        ({"topics": ("acme/cold/orders",), "topics_pattern": ".*"}, "by name and by pattern at once", None),
        ({"topics_pattern": "acme/("}, "not a regular expression", "acme/("),
        ({"topics": ("orders",)}, "not the name of a persistent topic", "orders"),
    ],
)
def test_a_wrong_choice_is_refused(selection, message, found):
    with pytest.raises(OptionError, match=message) as caught:
        labels(**selection)
    assert caught.value.found == found


def test_a_ledger_is_found_without_a_topic_also_of_an_unknown_one():
    for ledger_id, label in [(2, "acme/cold/orders@east"), (7, "(unknown topic)@east")]:
        assert labels(ledger_id=ledger_id) == [label]
        (topic,) = select_topics(CATALOGUE, Selection(ledger_id=ledger_id))
        assert [ledger.ledger_id for ledger in topic.ledgers] == [ledger_id]


def test_a_ledger_id_that_several_topics_have_is_refused_with_all_of_them():
    with pytest.raises(OptionError, match="several ledgers have this id") as caught:
        labels(ledger_id=1)
    assert caught.value.ledger_id == 1
    assert (
        caught.value.found == "persistent://acme/cold/orders of cluster east, (unknown topic) of cluster east"
    )


def test_a_topic_or_pattern_tells_ledgers_of_one_id_apart():
    assert labels(ledger_id=1, topics=("acme/cold/orders",)) == ["acme/cold/orders@east"]
    assert labels(ledger_id=5, topics_pattern=".*twin") == ["acme/hot/twin@east"]
    assert labels(ledger_id=6, topics=("acme/hot/twin",)) == ["acme/hot/twin@west"]


@pytest.mark.parametrize("selection", [{"ledger_id": 99}, {"ledger_id": 3, "topics": ("acme/cold/orders",)}])
def test_an_unknown_ledger_is_refused(selection):
    with pytest.raises(UnknownLedgerError, match="no copy of this ledger is here") as caught:
        labels(**selection)
    assert caught.value.ledger_id == selection["ledger_id"]
