"""Topic names: the forms that are taken, the one that is given back, and what is refused."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_hooks.errors import OptionError

_texts = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1)
_plain = st.from_regex(r"[A-Za-z0-9_=:.\-]{1,20}", fullmatch=True)


@pytest.mark.parametrize(
    "text", ["persistent://acme/cold/orders", "acme/cold/orders", "acme/cold/persistent/orders"]
)
def test_three_forms_name_the_same_topic(text):
    assert parse_topic(text) == TopicName("persistent://acme/cold/orders")


@pytest.mark.parametrize(
    ("managed_ledger", "topic"),
    [
        ("acme/cold/persistent/orders", "persistent://acme/cold/orders"),
        ("acme/cold/persistent/a%2Fb", "persistent://acme/cold/a/b"),
        ("acme/cold/persistent/a%252Fb", "persistent://acme/cold/a%2Fb"),
        ("acme/cold/persistent/with+space", "persistent://acme/cold/with space"),
        ("acme/cold/persistent/with%2Bplus", "persistent://acme/cold/with+plus"),
        ("acme/cold/persistent/gr%C3%BCn", "persistent://acme/cold/grün"),
        ("acme/cold/persistent/orders-partition-3", "persistent://acme/cold/orders-partition-3"),
        ("acme/persistent/persistent/persistent", "persistent://acme/persistent/persistent"),
        ("acme/use/cold/persistent/old", "persistent://acme/use/cold/old"),
        ("something of another kind", "something of another kind"),
    ],
)
def test_a_managed_ledgers_name_is_decoded_as_pulsar_encodes_it(managed_ledger, topic):
    assert topic_of_managed_ledger(managed_ledger) == TopicName(topic)


@pytest.mark.long
@given(tenant=_plain, namespace=_plain, topic=_texts)
@example(tenant="persistent", namespace="persistent", topic="persistent")
@example(tenant="t", namespace="n", topic="a b+c%2Fd~*")
def test_a_topic_and_its_managed_ledger_name_each_other(tenant, namespace, topic):
    name = parse_topic(f"persistent://{tenant}/{namespace}/{topic}")
    assert topic_of_managed_ledger(f"{tenant}/{namespace}/persistent/{quote_plus(topic)}") == name
    assert topic_of_managed_ledger(managed_ledger_of_topic(name)) == name
    assert str(name) == f"persistent://{tenant}/{namespace}/{topic}"


@pytest.mark.parametrize(
    ("topic", "managed_ledger"),
    [
        ("persistent://acme/cold/orders-partition-3", "acme/cold/persistent/orders-partition-3"),
        ("persistent://acme/cold/a b+c%2Fd~*é/._-", "acme/cold/persistent/a+b%2Bc%252Fd%7E*%C3%A9%2F._-"),
    ],
)
def test_a_topics_managed_ledger_is_named_as_java_encodes_it(topic, managed_ledger):
    assert managed_ledger_of_topic(TopicName(topic)) == managed_ledger


@given(tenant=_plain, namespace=_plain, topic=st.lists(_texts, min_size=1, max_size=4).map("/".join))
def test_a_name_that_is_shown_is_taken(tenant, namespace, topic):
    shown = topic_of_managed_ledger(f"{tenant}/{namespace}/persistent/{quote_plus(topic)}")
    if "://" not in f"{tenant}/{namespace}/{topic}":
        assert parse_topic(str(shown)) == shown


@given(
    tenant=_plain,
    namespace=_plain,
    topic=_texts.filter(lambda text: "-partition-" not in text),
    number=st.integers(0, 10**9 - 1),
)
def test_a_partition_knows_its_topic_and_number(tenant, namespace, topic, number):
    base = f"persistent://{tenant}/{namespace}/{topic}"
    assert TopicName(base).partition == -1
    assert TopicName(base).base == base
    partition = TopicName(f"{base}-partition-{number}")
    assert (partition.base, partition.partition) == (base, number)


@pytest.mark.parametrize(
    "end", ["-partition-", "-partition-x", "-partition-01", "-partition--1", "-partition-1x"]
)
def test_what_only_looks_like_a_partition_is_none(end):
    name = TopicName(f"persistent://acme/cold/orders{end}")
    assert (name.partition, name.base) == (-1, name.full)


def test_only_the_last_partition_of_a_name_counts():
    name = TopicName("persistent://acme/cold/orders-partition-1-partition-2")
    assert (name.partition, name.base) == (2, "persistent://acme/cold/orders-partition-1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "cold/orders",
        "acme//orders",
        "/cold/orders",
        "acme/cold/",
        "acme/cold/folder/orders",
        "acme//persistent/orders",
        "acme/cold/persistent/",
        "persistent://",
        "persistent://acme/cold",
        "persistent://acme/cold/",
        "persistent://acme//cold/orders",
        "non-persistent://acme/cold/orders",
        "persistent://persistent://acme/cold/orders",
        "http://acme/cold/orders",
    ],
)
def test_what_is_no_topic_is_refused_with_the_forms_that_are(text):
    with pytest.raises(OptionError) as caught:
        parse_topic(text)
    assert caught.value.found == text
    assert caught.value.expected == "persistent://tenant/namespace/topic or tenant/namespace/topic"


def test_topics_are_in_order_of_their_names():
    assert sorted([TopicName("b"), TopicName("a")]) == [TopicName("a"), TopicName("b")]
