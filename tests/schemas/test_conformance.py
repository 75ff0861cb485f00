"""The schema providers that are built in do what providers promise."""

from __future__ import annotations

import json

import pytest
from golden import BROKER
from network.admin import AdminRest
from scenes.schemas import history, record, version
from servers.process import free_port

from offload_core.format.schemas.schema_history import history_from_rest, history_of_definition
from offload_core.reading.admin_schemas import AdminSchemas
from offload_core.reading.schema_providers import LiteralSchema, SavedSchemas
from offload_hooks.testing import SchemaProviderConformance

TOPIC = "persistent://acme/cold/orders"
HISTORIES = {
    TOPIC: history(
        version(0, "AVRO", record(id="long"), owner="ü"), version(3, "AVRO", record(id="long", a=("int", 1)))
    ),
    "persistent://acme/cold/a b%2F/c": history(version(0, "STRING")),
}


class TestSaved(SchemaProviderConformance):
    @pytest.fixture
    def make_provider(self):
        return SavedSchemas

    @pytest.fixture
    def options(self, tmp_path):
        saved = SavedSchemas(tmp_path)
        for topic, each in HISTORIES.items():
            saved.save(topic, each)
        return {"path": str(tmp_path)}

    @pytest.fixture
    def histories(self):
        return HISTORIES

    @pytest.fixture
    def malformed(self, options, tmp_path):
        (tmp_path / "acme" / "cold" / "damaged.schemas.json").write_text("{")
        return options, "persistent://acme/cold/damaged"


class TestLiteral(SchemaProviderConformance):
    any_topic = True

    @pytest.fixture
    def make_provider(self):
        return LiteralSchema

    @pytest.fixture
    def options(self):
        return {"definition": json.dumps(record(id="long")), "type": "json"}

    @pytest.fixture
    def histories(self):
        return {TOPIC: history_of_definition(json.dumps(record(id="long")), "JSON")}


class TestAdmin(SchemaProviderConformance):
    secrets = ("geheim",)
    answer = json.loads((BROKER / "topics" / "avro" / "schemas.json").read_text())

    @pytest.fixture
    def make_provider(self):
        return AdminSchemas

    @pytest.fixture
    def options(self):
        places = {
            "/schemas/acme/cold/avro/schemas": self.answer,
            "/schemas/acme/cold/damaged/schemas": {"getSchemaResponses": [{"version": "one"}]},
        }
        with AdminRest(places) as rest:
            yield {"url": rest.url, "token": "geheim", "attempts": "1"}

    @pytest.fixture
    def histories(self):
        return {"persistent://acme/cold/avro": history_from_rest(self.answer)}

    @pytest.fixture
    def malformed(self, options):
        return options, "persistent://acme/cold/damaged"

    @pytest.fixture
    def unreachable(self):
        return {
            "url": f"http://127.0.0.1:{free_port()}",
            "token": "geheim",
            "attempts": "1",
            "timeout_s": "5",
        }
