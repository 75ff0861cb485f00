"""Schemas as the service tells of them: what a broker told, of what was saved beside a tier."""

import json

import pytest
from golden import BROKER
from service import Service
from tiers import lay_out_broker_objects

pytestmark = pytest.mark.long

AVRO = BROKER / "topics" / "avro" / "schemas.json"
PATH = "/admin/v2/schemas/acme/cold"


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """A service whose tier is a directory with the topic `avro` of a broker."""
    folder = tmp_path_factory.mktemp("schemas")
    lay_out_broker_objects(folder / "cold", {"avro"})
    settings = f'[policies]\ndriver = "local"\nextra_configurations.root = "{folder}/cold"\n'
    with Service(folder, settings) as running:
        yield running


def test_what_was_pulled_is_told_as_the_broker_told_it(cold, offload):
    folder = cold.config.parent / "cold"
    done = offload("schemas", "pull", folder, "--from", AVRO)
    assert done.code == 0, done.err
    told = json.loads(AVRO.read_text())
    assert cold.ask("GET", f"{PATH}/avro/schemas").json == told
    newest, oldest = told["getSchemaResponses"][-1], told["getSchemaResponses"][0]
    assert newest != oldest
    for topic in ("avro", "avro-partition-2"):
        assert cold.ask("GET", f"{PATH}/{topic}/schema").json == newest
        assert cold.ask("GET", f"{PATH}/{topic}/schema/0").json == oldest


def test_what_is_not_kept_is_answered_as_by_a_broker(cold):
    for path in ("none/schema", "none/schema/0", "avro/schema/99"):
        answer = cold.ask("GET", f"{PATH}/{path}")
        assert (answer.status, answer.json) == (404, {"reason": "Schema not found"})
    assert cold.ask("GET", f"{PATH}/none/schemas").json == {"getSchemaResponses": []}
    for path in ("avro/schema/newest", "avro/schema/-1", "x%2Fschemas"):
        assert cold.ask("GET", f"{PATH}/{path}").status == 404


def test_a_tier_that_cannot_be_opened_is_told(service, namespace):
    path = namespace.replace("namespaces", "schemas")
    service.ask("POST", f"{namespace}/offloadPolicies", {"managedLedgerOffloadDriver": "local"})
    refused = service.ask("GET", f"{path}/t/schema")
    assert (refused.status, "root" in refused.text) == (412, True)


def test_a_file_of_schemas_that_is_none_is_named(cold, tmp_path):
    folder = cold.config.parent / "cold" / "schemas" / "acme" / "cold"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "broken.schemas.json").write_text("nonsense")
    told = cold.ask("GET", f"{PATH}/broken/schema")
    assert (told.status, "schemas/acme/cold/broken.schemas.json" in told.text) == (500, True)
