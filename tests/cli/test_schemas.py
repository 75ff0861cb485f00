"""`offload schemas` and typed `offload cat`."""

import json

import pytest
from golden import BROKER, topic_rows
from network.admin import AdminRest
from tiers import lay_out_broker_objects

AVRO = BROKER / "topics" / "avro" / "schemas.json"


@pytest.fixture
def tier(tmp_path):
    lay_out_broker_objects(tmp_path, {"avro"})
    return tmp_path


def test_histories_are_pulled_beside_the_tier_and_read_from_there(offload, tier):
    pulled = offload("schemas", "pull", tier, "--from", AVRO)
    assert pulled.code == 0, pulled.err
    assert "versions 0, 1 (AVRO) saved as schemas/acme/cold/avro.schemas.json" in pulled.out
    done = offload(
        "cat", tier, "-t", "acme/cold/avro", "--schemas", tier / "schemas", "--format", "jsonl", "--columns", "id"
    )  # fmt: skip
    assert done.code == 0, done.err
    ids = [json.loads(line)["id"] for line in done.out.splitlines()]
    assert ids == [row["value"]["id"] for row in topic_rows("avro")]


def test_histories_are_pulled_from_a_broker(offload, tmp_path):
    lay_out_broker_objects(tmp_path, {"avro", "jstring"})
    place = "/schemas/acme/cold/avro/schemas"
    with AdminRest({place: json.loads(AVRO.read_text())}) as rest:
        pulled = offload("schemas", "pull", tmp_path, "--from", rest.url)
    assert pulled.code == 0, pulled.err
    assert (
        "persistent://acme/cold/avro: versions 0, 1 (AVRO) saved as schemas/acme/cold/avro.schemas.json"
        in pulled.out
    )
    assert "persistent://acme/cold/jstring: has no schema" in pulled.out


def test_a_schema_is_inferred_saved_and_read_from_there(offload, tmp_path):
    lay_out_broker_objects(tmp_path, {"json"})
    pulled = offload("schemas", "pull", tmp_path, "--from", "infer:messages=10")
    assert pulled.code == 0, pulled.err
    assert "version 0 (JSON) saved as schemas/acme/cold/json.schemas.json" in pulled.out
    saved = ("--schemas", tmp_path / "schemas", "--columns", "id", "--format", "jsonl")
    done = offload("cat", tmp_path, "-t", "acme/cold/json", *saved)
    assert done.code == 0, done.err  # of all versions, which messages name
    ids = [json.loads(line)["id"] for line in done.out.splitlines()]
    assert ids == [row["value"]["id"] for row in topic_rows("json")]


def test_histories_are_pulled_into_a_directory(offload, tier, tmp_path):
    there = tmp_path / "elsewhere"
    there.mkdir()
    done = offload("schemas", "pull", tier, "-t", "acme/cold/avro", "--from", AVRO, "--to", there)
    assert done.code == 0, done.err
    assert (there / "acme" / "cold" / "avro.schemas.json").is_file()


def test_versions_are_shown(offload, tier):
    offload("schemas", "pull", tier, "--from", AVRO)
    shown = offload("schemas", "show", tier)
    assert shown.code == 0, shown.err
    assert [line.split()[1:3] for line in shown.out.splitlines()[1:]] == [["0", "AVRO"], ["1", "AVRO"]]
    assert all(" 2026-11-" in line for line in shown.out.splitlines()[1:])
    known = offload("schemas", "show", tier, "--json").json
    schemas = known["persistent://acme/cold/avro"]["schemas"]
    assert [json.loads(each["data"])["name"] for each in schemas] == ["V1", "V1"]


def test_a_tier_without_saved_schemas_is_as_it_should_be(offload, tier, tmp_path):
    shown = offload("schemas", "show", tier)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == (
        "no schema of 1 topic is saved in this tier: offload schemas pull URL --from … saves them\n"
    )
    assert offload("schemas", "show", tier, "--json").json == {}
    (tmp_path / "none").mkdir()
    assert offload("schemas", "show", tmp_path / "none").out == "no topics\n"


def test_a_topic_without_schemas_is_said(offload, tier):
    shown = offload("schemas", "show", tier, "-t", "acme/cold/avro")
    assert shown.code == 1
    assert "no schema is known of persistent://acme/cold/avro" in shown.err


def test_the_mode_and_the_reader_are_handed_on(offload, tier):
    wrong = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "string"}]})
    arguments = ("cat", tier, "-t", "acme/cold/avro", "--schemas", AVRO, "--format", "jsonl")
    failed = offload(*arguments, "--reader-schema", wrong)
    assert failed.code == 1
    assert "cannot be read as the reader's" in failed.err
    dropped = offload(*arguments, "--reader-schema", wrong, "--mode", "DROPMALFORMED")
    assert (dropped.code, dropped.out) == (0, "")
    oldest = offload(*arguments, "--reader-schema", "0", "--limit", "1")
    assert "note" not in oldest.json


def test_a_table_shows_the_columns_of_the_payload(offload, tier):
    done = offload("cat", tier, "-t", "acme/cold/avro", "--schemas", AVRO, "--limit", "2")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:3] == ["id", "name", "price"]
