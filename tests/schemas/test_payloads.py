"""Messages to typed columns: which schema decodes which message, and what becomes of those that cannot be decoded."""

from __future__ import annotations

import json
import logging
import pickle

import pytest
from scenes.schemas import TOPIC, Known, history, record, tier_of, version, write

from offload_core.format.schemas import Payloads
from offload_hooks.errors import OptionError, PayloadError, SchemaError
from pulsar_offload import scan

OLD = record(id="long", gone="string")
NEW = record(id="long", note=("string", "none"))
BOTH = history(version(0, "AVRO", OLD), version(1, "AVRO", NEW))
FIRST = write(OLD, {"id": 1, "gone": "x"})
SECOND = write(NEW, {"id": 2, "note": "zwei"})
BROKEN = SECOND + b"more"


def known(*versions):
    return Known({TOPIC: history(*versions)})


def read(*messages, schemas=None, **options):
    """The rows of a tier of these messages, whose topic has both versions by default."""
    schemas = Known({TOPIC: BOTH}) if schemas is None else schemas
    return scan(tier_of(*messages), schemas=schemas, **options).to_table().to_pylist()


def test_each_message_is_decoded_by_its_own_version():
    messages = ((FIRST, 0), (SECOND, 1), (None, 1), (FIRST, 0))
    assert read(*messages, columns=["id", "note", "__entryId"]) == [
        {"id": 1, "note": "none", "__entryId": 0},
        {"id": 2, "note": "zwei", "__entryId": 1},
        {"id": None, "note": None, "__entryId": 2},
        {"id": 1, "note": "none", "__entryId": 3},
    ]


def test_a_message_that_names_no_version_was_written_as_the_reader_reads():
    assert read((SECOND, None), columns=["id", "note"]) == [{"id": 2, "note": "zwei"}]


def test_the_histories_are_asked_for_once_by_the_topics_names():
    provider = Known({TOPIC: BOTH})
    read((SECOND, 1), schemas=provider)
    assert provider.asked == [TOPIC]


def test_what_cannot_be_decoded_fails_fast_with_its_place():
    with pytest.raises(PayloadError, match="goes on behind its end") as caught:
        read((FIRST, 0), (SECOND, 1), (BROKEN, 1))
    assert caught.value.ledger_id is not None
    assert caught.value.entry_id == 2
    assert caught.value.key


def test_what_cannot_be_decoded_is_passed_on_with_null_columns():
    rows = read((FIRST, 0), (BROKEN, 1), (None, 1), (SECOND, 1), (b"", 1), mode="PERMISSIVE")
    assert list(rows[0])[:3] == ["id", "note", "_corrupt_record"]
    assert [tuple(row.values())[:3] for row in rows] == [
        (1, "none", None),
        (None, None, BROKEN),
        (None, None, None),
        (2, "zwei", None),
        (None, None, b""),
    ]


def test_the_column_of_what_cannot_be_decoded_has_the_name_that_is_asked_for():
    rows = read((BROKEN, 1), mode="PERMISSIVE", corrupt_column="raw", columns=["id", "raw"])
    assert rows == [{"id": None, "raw": BROKEN}]


def test_what_cannot_be_decoded_is_left_out_and_counted(caplog):
    with caplog.at_level(logging.WARNING):
        rows = read((BROKEN, 1), (SECOND, 1), (BROKEN, 1), mode="DROPMALFORMED", columns=["id"])
    assert rows == [{"id": 2}]
    assert "2 messages are left out" in caplog.text


@pytest.mark.parametrize(
    ("number", "says"), [(7, "version of a message's schema is not known"), (2, "no field 'note2'")]
)
def test_a_version_that_cannot_be_read_spoils_its_messages_only(number, says):
    reader = record(id="long", note2="string")
    provider = known(version(2, "AVRO", NEW), version(3, "AVRO", reader))
    good = write(reader, {"id": 5, "note2": "y"})
    messages, columns = ((SECOND, number), (good, 3)), ["id", "note2", "_corrupt_record"]
    with pytest.raises(SchemaError, match=says) as caught:
        read(*messages, schemas=provider)
    assert caught.value.entry_id == 0
    rows = read(*messages, schemas=provider, mode="PERMISSIVE", columns=columns)
    assert [tuple(row.values()) for row in rows] == [(None, None, SECOND), (5, "y", None)]


def test_what_is_not_asked_for_is_not_decoded():
    newest = record(id="long", note2="string")
    provider = known(version(2, "AVRO", NEW), version(3, "AVRO", newest))
    assert read((SECOND, 2), schemas=provider, columns=["id"]) == [{"id": 2}]


def test_a_version_of_another_type_cannot_be_read():
    provider = known(version(0, "STRING"), version(1, "AVRO", NEW))
    with pytest.raises(SchemaError, match="another type than the reader's"):
        read((b"text", 0), schemas=provider)


def test_a_topic_whose_schemas_are_not_known_is_an_error():
    with pytest.raises(SchemaError, match="schemas of persistent://acme/cold/orders are not known"):
        scan(tier_of((SECOND, 1)), schemas=Known({}))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": ["value"]}, "no column 'value'"),
        ({"columns": ["nota"]}, "Did you mean 'note'"),
        ({"columns": ["id", "id"]}, "asked for twice"),
        ({"columns": []}, "no column is asked for"),
        ({"columns": ["_corrupt_record"]}, "no column '_corrupt_record'"),
        ({"mode": "SOMETIMES"}, "no such mode"),
        ({"reader_schema": 9}, "has no version 9"),
        ({"reader_schema": "latest"}, "neither a version's number nor JSON"),
        ({"level": "entries"}, "entries have no schema"),
    ],
)
def test_what_makes_no_sense_is_refused(options, says):
    with pytest.raises(OptionError, match=says):
        scan(tier_of((SECOND, 1)), schemas=Known({TOPIC: BOTH}), **options)


def test_a_field_that_is_named_as_a_column_of_ours_is_refused():
    with pytest.raises(SchemaError, match="'__topic'"):
        scan(tier_of((b"", 0)), schemas=known(version(0, "AVRO", record(__topic="string"))))


def test_a_literal_schema_stands_for_all_versions():
    rows = read((SECOND, 1), (SECOND, 5), (SECOND, None), schemas=json.dumps(NEW), columns=["id"])
    assert rows == [{"id": 2}] * 3
    rows = read((b"gr\xc3\xbcn", 3), schemas="literal:type=STRING", columns=["value"])
    assert rows == [{"value": "grün"}]


def test_payloads_cross_to_other_processes():
    payloads = Payloads(histories={TOPIC: BOTH})
    assert pickle.loads(pickle.dumps(payloads)) == payloads


def test_a_key_that_is_separated_is_the_messages_key():
    definition = {"key": "", "value": json.loads(json.dumps(NEW))}
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"}
    provider = known(version(0, "KEY_VALUE", definition, **properties))
    messages = ((SECOND, 0, b"eins"), (None, 0, b"zwei"))
    assert read(*messages, schemas=provider, columns=["key", "value"]) == [
        {"key": "eins", "value": {"id": 2, "note": "zwei"}},
        {"key": "zwei", "value": None},
    ]


def test_the_log_says_how_to_get_types(caplog):
    with caplog.at_level(logging.INFO):
        scan(tier_of((SECOND, None))).to_table()
        assert "schemas" not in caplog.text
        scan(tier_of((SECOND, 1))).to_table()
    assert "The option `schemas` gives typed columns" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        scan(tier_of((SECOND, 1)), schemas=Known({TOPIC: BOTH})).to_table()
    assert "gives typed columns" not in caplog.text
