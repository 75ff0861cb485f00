"""Where a scan starts and ends, as people write it."""

import json

import pytest
from entries import pip17_object
from tiers import in_memory

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position, parse_offsets, parse_position
from offload_core.reading.scan.positions import position_of, position_of_message_id
from offload_hooks.errors import OptionError
from pulsar_offload import scan

ORDERS = TopicName("persistent://acme/cold/orders")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0:0", Position(0, 0, 0)),
        ("12:345", Position(12, 345, 0)),
        ("12:345:6", Position(12, 345, 6)),
        ("9223372036854775807:9223372036854775807:999999999", Position(2**63 - 1, 2**63 - 1, 999999999)),
    ],
)
def test_a_position_is_ledger_entry_and_perhaps_batch_index(text, position):
    assert parse_position(text) == position


@pytest.mark.parametrize(
    ("partition", "text", "place"),
    [
        ("-1", "base64:CAEQAg==", Position(1, 2)),
        ("-1", "hex:08011002", Position(1, 2)),
        ("-1", "hex:0801100218FFFFFFFFFFFFFFFFFF01", Position(1, 2)),  # partition -1
        ("4", "hex:0801100218042003", Position(1, 2, 3)),
        ("4", "base64:CAEQAhgEIAM=", Position(1, 2, 3)),
        ("-1", "hex:08FFFFFFFFFFFFFFFFFF0110FFFFFFFFFFFFFFFFFF01", "earliest"),
        ("-1", "hex:08FFFFFFFFFFFFFFFF7F10FFFFFFFFFFFFFFFF7F", "latest"),
    ],
)
def test_a_message_id_stands_for_its_position(partition, text, place):
    (found,) = parse_offsets(json.dumps({"acme/cold/orders": {partition: text}}), "startingOffsets").values()
    assert found == place


@pytest.mark.parametrize(
    ("partition", "text", "message"),
    [
        ("-1", "base64:", "not a message id"),
        ("-1", "base64:CAEQAg", "not a message id"),
        ("-1", "base64:CAEQAg==\n", "not a message id"),
        ("-1", "hex:0801100", "not a message id"),
        ("-1", "hex:ffff", "not a message id"),
        ("-1", "hex:0801", "not a message id"),
        ("-1", "hex:08FFFFFFFFFFFFFFFFFF011002", "not a message id"),
        ("3", "hex:0801100218042003", "not of persistent://acme/cold/orders-partition-3: .*partition 4"),
        ("-1", "hex:0801100218042003", "expected partition -1"),
        ("-1", "HEX:08011002", "not a position"),
    ],
)
def test_what_is_no_message_id_of_the_partition_is_refused(partition, text, message):
    with pytest.raises(OptionError, match=message):
        parse_offsets(json.dumps({"acme/cold/orders": {partition: text}}), "startingOffsets")


@pytest.mark.parametrize(
    "text", ["", "1", "1:", ":1", "1:2:", "1:2:3:4", "-1:0", "1:-1", "a:b", "1:2 ", "1;2"]
)
def test_another_form_of_position_is_refused(text):
    with pytest.raises(OptionError, match="this is not a position") as caught:
        parse_position(text)
    assert caught.value.found == text


def test_positions_are_ordered_by_ledger_entry_and_batch_index():
    texts = ["1:2:3", "1:2:4", "1:3", "2:0", "10:0"]
    assert sorted(map(parse_position, reversed(texts))) == [parse_position(text) for text in texts]


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_a_word_stands_for_all_topics(word):
    assert parse_offsets(word, "startingOffsets") == word


def test_json_gives_a_position_for_each_topic_and_partition():
    text = json.dumps(
        {
            "acme/cold/orders": {"-1": "3:4"},
            "persistent://acme/cold/parts": {"0": "5:6:7", "12": "earliest"},
            "acme/cold/persistent/one-partition-2": {"2": "latest"},
            "acme/cold/persistent/one-partition-3": {"-1": "8:9"},
        }
    )
    assert parse_offsets(text, "startingOffsets") == {
        ORDERS: Position(3, 4),
        TopicName("persistent://acme/cold/parts-partition-0"): Position(5, 6, 7),
        TopicName("persistent://acme/cold/parts-partition-12"): "earliest",
        TopicName("persistent://acme/cold/one-partition-2"): "latest",
        TopicName("persistent://acme/cold/one-partition-3"): Position(8, 9),
    }


def test_message_ids_are_read_as_pulsar_spark_writes_them():
    first = position_of_message_id(bytes([8, 11, 16, 101, 24, 1, 32, 1]))
    assert first == Position(11, 101, 1)
    latest = [8, *[-1] * 8, 127, 16, *[-1] * 8, 127]
    text = json.dumps(
        {
            "acme/cold/orders": [8, 11, 16, 101, 32, 1],
            "acme/cold/parts-partition-1": [8, 11, 16, 101, 24, 1, 32, 1],
            "acme/cold/parts-partition-2": latest,
            "acme/cold/parts-partition-3": [each & 0xFF for each in latest],
        }
    )
    assert parse_offsets(text, "startingOffsets") == {
        ORDERS: first,
        TopicName("persistent://acme/cold/parts-partition-1"): first,
        TopicName("persistent://acme/cold/parts-partition-2"): "latest",
        TopicName("persistent://acme/cold/parts-partition-3"): "latest",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([8, 11, 16], "not a message id"),
        ([], "not a message id"),
        ([8, 256], "startingOffsets has another form at 'acme/cold/orders'"),
        ([8, "x"], "startingOffsets has another form at 'acme/cold/orders'"),
        ([8, 11, 16, 101, 24, 1], "a message id is not of"),
    ],
)
def test_lists_that_are_no_message_ids_are_refused(given, message):
    with pytest.raises(OptionError, match=message):
        parse_offsets(json.dumps({"acme/cold/orders": given}), "startingOffsets")


def test_kafkas_numbers_are_refused_with_what_helps():
    with pytest.raises(OptionError) as caught:
        parse_offsets('{"acme/cold/orders": {"0": 23}}', "startingOffsets")
    assert "Kafka" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Earliest",
        "3:4",
        "[]",
        "1",
        "null",
        "{",
        '{"acme/cold/orders": "3:4"}',
        '{"acme/cold/orders": {"-2": "3:4"}}',
        '{"acme/cold/orders": {"all": "3:4"}}',
        '{"acme/cold/orders": {"-1": 3}}',
        '{"acme/cold/orders": {"-1": null}}',
        "[" * 100_000,
    ],
)
def test_another_form_of_offsets_is_refused_by_the_options_name(text):
    with pytest.raises(OptionError, match="endingOffsets") as caught:
        parse_offsets(text, "endingOffsets")
    assert "earliest, latest, or {" in str(caught.value.expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"orders": {"-1": "3:4"}}', "not the name of a persistent topic"),
        ('{"acme/cold/orders": {"-1": "3"}}', "this is not a position"),
    ],
)
def test_a_wrong_topic_or_position_in_offsets_is_refused(text, message):
    with pytest.raises(OptionError, match=message):
        parse_offsets(text, "startingOffsets")


def test_a_topic_that_is_not_named_keeps_the_default():
    offsets = {ORDERS: Position(1, 2)}
    assert position_of(offsets, ORDERS, "earliest") == Position(1, 2)
    assert position_of(offsets, TopicName("persistent://acme/cold/other"), "earliest") == "earliest"
    assert position_of(offsets, None, "latest") == "latest"
    assert position_of("latest", None, "earliest") == "latest"


@pytest.mark.parametrize(
    "offsets",
    [
        "yesterday",
        '{"acme/cold/orders": {"-1": "7:1"}}',
        {"acme/cold/orders": Position(7, 1)},
        {ORDERS: "7:1"},
        {ORDERS: (7, 1)},
        7,
        None,
    ],
)
@pytest.mark.parametrize("bound", ["start", "stop"])
def test_a_bound_of_another_form_is_refused_and_not_taken_for_everything(offsets, bound):
    tier = in_memory(pip17_object([b"a", b"b"]))
    with pytest.raises(OptionError, match=f"^{bound} has another form"):
        scan(tier, **{bound: offsets})
