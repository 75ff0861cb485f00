"""Who knows topics' schemas: saved files, literal schemas, plugins by name; what is refused; what is shown."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from golden import BROKER
from scenes.schemas import TOPIC, Known, history, record, unread, version
from tiers import lay_out_broker_objects

from offload_core.format.schemas.schema_history import parse_saved, saved_bytes
from offload_core.reading.schema_providers import (
    LiteralSchema,
    SavedSchemas,
    SchemaFiles,
    open_provider,
    saved_in,
)
from offload_core.storage.tier import Tier, registry, survey
from offload_hooks.errors import (
    BrokenPluginError,
    ObjectNotFoundError,
    OptionError,
    SchemaError,
    UnknownPluginError,
    UnsupportedVersionError,
)
from offload_hooks.testing import MemoryDriver
from pulsar_offload import open_tier

AVRO_TOPIC = "persistent://acme/cold/avro"
HISTORY = history(
    version(0, "AVRO", record(id="long"), owner="ü"), version(1, "AVRO", record(id="long", a=("int", 1)))
)


def test_a_history_that_is_saved_is_read_again(tmp_path):
    saved = SavedSchemas(tmp_path)
    odd = "persistent://acme/cold/a b%2F/c"
    assert saved.save(odd, HISTORY) == "acme/cold/a%20b%252F%2Fc.schemas.json"
    assert saved.history(odd) == HISTORY
    assert saved.history(TOPIC) is None


def test_a_partition_has_the_schemas_of_its_topic(tmp_path):
    saved = SavedSchemas(tmp_path)
    saved.save("persistent://acme/cold/orders", HISTORY)
    assert saved.history("persistent://acme/cold/orders-partition-3") == HISTORY


def test_one_file_is_read_whatever_the_topic(tmp_path):
    path = tmp_path / "orders.json"
    path.write_bytes(saved_bytes(TOPIC, HISTORY))
    assert SavedSchemas(path).history("persistent://x/y/z") == HISTORY
    with pytest.raises(ObjectNotFoundError):
        SavedSchemas(tmp_path / "other.json").history(TOPIC)


def test_one_file_that_a_link_leads_to_is_read(tmp_path):
    (tmp_path / "..data").mkdir()  # as Kubernetes mounts configuration
    (tmp_path / "..data" / "orders.json").write_bytes(saved_bytes(TOPIC, HISTORY))
    (tmp_path / "orders.json").symlink_to("..data/orders.json")
    assert SavedSchemas(tmp_path / "orders.json").history("persistent://x/y/z") == HISTORY


@pytest.mark.parametrize("name", ["漢" * 26, "漢" * 60, "x" * 300])
def test_a_topic_with_a_long_name_has_its_schemas_saved_and_read_again(name, tmp_path):
    topic = f"acme/cold/{name}"
    saved = SavedSchemas(tmp_path)
    key = saved.save(topic, HISTORY)
    assert len(key.rpartition("/")[2]) <= 241
    assert saved.history(topic) == saved.history(f"{topic}-partition-1") == HISTORY
    assert saved.history(f"{topic}x") is None


def test_schemas_that_were_saved_under_a_long_name_are_found():
    tier = Tier(MemoryDriver())
    files = SchemaFiles(tier)
    data = saved_bytes("acme/cold/" + "x" * 300, HISTORY)
    tier.write_index(f"acme/cold/{'x' * 300}.schemas.json", data)
    assert files.history("acme/cold/" + "x" * 300) == HISTORY
    assert files.history("acme/cold/" + "x" * 301) is None


@pytest.mark.parametrize("name", ["schemas.json", "schema-latest.json", "schema-v0.json"])
def test_answers_of_the_admin_rest_are_read_as_they_are(name):
    found = SavedSchemas(BROKER / "topics" / "avro" / name).history(AVRO_TOPIC)
    assert {each.type for each in found.versions} == {"AVRO"}
    numbers = {"schemas.json": [0, 1], "schema-latest.json": [1], "schema-v0.json": [0]}[name]
    assert [each.version for each in found.versions] == numbers
    assert found.newest.timestamp_ms is not None


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", SchemaError),
        (b"\xff", SchemaError),
        (b"[]", SchemaError),
        (b"{}", SchemaError),
        (b"[" * 100_000, SchemaError),
        (b'{"getSchemaResponses": []}', SchemaError),
        (b'{"getSchemaResponses": [1]}', SchemaError),
        (b'{"version": 0, "type": 1, "data": ""}', SchemaError),
        (b'{"version": 0, "type": "AVRO", "data": "", "properties": {"a": 1}}', SchemaError),
        (b'{"version": 0, "type": "AVRO", "data": "", "timestamp": "now"}', SchemaError),
        (
            b'{"getSchemaResponses": [{"version": 0, "type": "AVRO"}, {"version": 0, "type": "JSON"}]}',
            SchemaError,
        ),
        (b'{"version": 2, "topic": "a", "schemas": []}', UnsupportedVersionError),
        (b'{"version": "1", "topic": "a", "schemas": []}', SchemaError),
        (b'{"version": 1, "schemas": [{"version": 0, "type": "STRING"}]}', SchemaError),
    ],
)
def test_a_file_that_is_not_right_is_refused(content, kind, tmp_path):
    with pytest.raises(kind):
        parse_saved(content)
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(kind):
        SavedSchemas(tmp_path / "a.json").history(TOPIC)


def test_files_of_schemas_beside_a_tier_are_not_taken_for_objects(tmp_path):
    lay_out_broker_objects(tmp_path, {"avro"})
    with open_tier(tmp_path) as tier:
        before = tier.catalogue()
        saved_in(tier.store).save(AVRO_TOPIC, HISTORY)
        assert (tmp_path / "schemas" / "acme" / "cold" / "avro.schemas.json").is_file()
        assert tier.catalogue() == before


def test_what_is_meant_by_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open_tier(tmp_path) as tier:

        def kind(source):
            return type(open_provider(source, tier.store, {}, unread))

        (tmp_path / "literal").mkdir()
        assert kind(json.dumps(record(id="int"))) is LiteralSchema
        assert kind('"long"') is LiteralSchema
        assert kind("literal:type=INT32") is LiteralSchema
        assert kind(("literal", {"type": "INT32"})) is LiteralSchema
        assert kind("saved:path=there") is SavedSchemas
        assert kind(tmp_path) is SavedSchemas
        assert kind(tmp_path.as_uri()) is SavedSchemas
        assert kind("orders.json") is SavedSchemas
        assert kind("./literal") is SavedSchemas
        given = Known({})
        assert open_provider(given, tier.store, {}, unread) is given


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("", OptionError),
        ("{", OptionError),
        ("literal:kind=INT32", OptionError),
        (("nobody", {}), UnknownPluginError),
        ("adminn:url=http://broker:8080", UnknownPluginError),
        ('{"getSchemaResponses": []}', OptionError),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(source, kind, tmp_path):
    with open_tier(tmp_path) as tier, pytest.raises(kind):
        open_provider(source, tier.store, {}, unread)


def test_a_plugin_that_is_no_provider_is_refused(monkeypatch):
    entry = EntryPoint("empty", "argparse:Namespace", registry.SCHEMA_PROVIDERS)
    monkeypatch.setattr(registry, "find", lambda *_: entry)
    with pytest.raises(BrokenPluginError, match="no method 'history'"):
        registry.make_schema_provider("empty", {})


def test_the_built_in_providers_are_listed_as_plugins():
    reports = {report.name: report for report in survey() if report.group == registry.SCHEMA_PROVIDERS}
    assert {"saved", "literal"} <= reports.keys()
    assert all(report.status == "ok" for report in reports.values())


def test_the_example_of_a_saved_file_is_what_is_written_and_read():
    topic = "persistent://acme/cold/jstring"
    example = (Path(__file__).parents[1] / "docs" / "schemas-v1.json").read_bytes()
    (text,) = parse_saved(example)[1].versions
    assert (text.type, text.version, text.timestamp_ms) == ("STRING", 0, 1_795_215_797_659)
    assert saved_bytes(topic, history(text)) == example
