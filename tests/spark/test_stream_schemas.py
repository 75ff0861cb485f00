"""Streams and schemas: a topic that appears later is read if it makes the stream's columns, else it is refused."""

import json

import pytest
from entries import entry, pip17_object
from scenes.schemas import history, record, version, write
from streams import Query
from tiers import Names, lay_out

from offload_core.reading.schema_providers import SavedSchemas
from offload_hooks.errors import PayloadError, SchemaError

FLAT = record(id="long", name="string")
WIDER = record(id="long", name="string", more=("int", 0))
COLUMNS = ("id", "name", "__ledgerId")


def put(root, ledger_id, topic, *payloads):
    names = Names(managed_ledger=f"acme/cold/persistent/{topic}")
    entries = [entry(payload, schema_version=bytes(8)) for payload in payloads]
    lay_out(root, pip17_object(entries, ledger_id=ledger_id), attempt=ledger_id, names=names)


def save(folder, topic, definition):
    folder.mkdir(exist_ok=True)
    SavedSchemas(folder).save(f"persistent://acme/cold/{topic}", history(version(0, "AVRO", definition)))


def avro(number):
    return write(FLAT, {"id": number, "name": f"n{number}"})


@pytest.fixture
def tier(tmp_path):
    """A tier with one topic, whose schema is saved."""
    root = tmp_path / "tier"
    put(root, 1, "orders", avro(1))
    save(tmp_path / "schemas", "orders", FLAT)
    return root


def query(tier, columns=COLUMNS, **options):
    made = Query(
        tier,
        columns=columns,
        **{"topicsPattern": "acme/cold/.*", "schemas": tier.parent / "schemas", **options},
    )
    assert made.run() == [(1, "n1", 1)[: len(columns)]]
    return made


@pytest.mark.long
def test_a_new_topic_with_the_same_columns_is_read(tier):
    stream = query(tier)
    save(tier.parent / "schemas", "others", FLAT)
    put(tier, 2, "others-partition-1", avro(2))
    put(tier, 3, "orders", avro(3))
    assert sorted(stream.run()) == [(2, "n2", 2), (3, "n3", 3)]
    put(tier, 4, "others-partition-0", avro(4))
    assert stream.run() == [(4, "n4", 4)]
    stream.restart()
    put(tier, 5, "others-partition-1", avro(5))
    assert stream.run() == [(5, "n5", 5)]


def test_a_new_topic_whose_schemas_are_not_known_is_refused(tier):
    stream = query(tier)
    put(tier, 2, "others", avro(2))
    with pytest.raises(
        SchemaError, match=r"cold/others came after the stream had begun.*not known.*schemas pull"
    ):
        stream.trigger()
    save(tier.parent / "schemas", "others", FLAT)
    assert stream.run() == [(2, "n2", 2)]


def test_a_new_topic_with_other_columns_is_refused(tier):
    stream = query(tier)
    save(tier.parent / "schemas", "others", WIDER)
    put(tier, 2, "others", write(WIDER, {"id": 2, "name": "n2", "more": 3}))
    with pytest.raises(SchemaError, match=r"cold/others came after .*columns that differ.*readerSchema"):
        stream.trigger()


def test_a_new_topic_with_other_columns_is_resolved_to_the_readers(tier):
    stream = query(tier, readerSchema=json.dumps(FLAT))
    save(tier.parent / "schemas", "others", WIDER)
    put(tier, 2, "others", write(WIDER, {"id": 2, "name": "n2", "more": 3}))
    assert stream.run() == [(2, "n2", 2)]


def test_a_literal_schema_is_that_of_new_topics_as_well(tier):
    stream = query(tier, schemas=json.dumps(FLAT))
    put(tier, 2, "others", avro(2))
    assert stream.run() == [(2, "n2", 2)]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_what_cannot_be_decoded_is_by_mode(tier, mode):
    columns = ("id", "name", "_corrupt_record") if mode == "PERMISSIVE" else ("id", "name")
    stream = query(tier, ("id", "name"), mode=mode)
    put(tier, 2, "orders", b"\xff", avro(3))
    whole = Query(tier, columns=columns, mode=mode, schemas=tier.parent / "schemas")
    if mode == "FAILFAST":
        with pytest.raises(PayloadError):
            stream.run()
        return
    wrong = [(None, None)] if mode == "PERMISSIVE" else []
    assert stream.run() == [*wrong, (3, "n3")]
    if mode == "PERMISSIVE":
        assert whole.run() == [(1, "n1", None), (None, None, b"\xff"), (3, "n3", None)]
