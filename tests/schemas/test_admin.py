"""The schema provider `admin`: golden answers of a broker over a real socket, and what goes wrong."""

from __future__ import annotations

import json

import pytest
from golden import BROKER
from network.admin import AdminRest, raises_without, reason
from network.fronts import Answer
from scenes.schemas import unread
from servers.process import free_port

from offload_core.format.schemas import history_from_rest
from offload_core.reading.admin_schemas import AdminSchemas
from offload_core.reading.schema_providers import open_provider
from offload_hooks.errors import (
    AccessDeniedError,
    OptionError,
    SchemaError,
    StoreError,
    StoreUnavailableError,
)
from pulsar_offload import open_tier

ANSWER = json.loads((BROKER / "topics" / "avro" / "schemas.json").read_text())
PLACE = "/schemas/acme/cold/avro/schemas"
TOPIC = "persistent://acme/cold/avro"
SECRET = "geheim"


def history_of(answer, topic=TOPIC, **options):
    with AdminRest({PLACE: answer}) as rest:
        return AdminSchemas(rest.url, attempts=1, **options).history(topic)


def test_a_brokers_answer_is_the_history():
    assert history_of(ANSWER) == history_from_rest(ANSWER)
    assert history_of(ANSWER, f"{TOPIC}-partition-2") == history_from_rest(ANSWER)


def test_the_name_of_a_topic_is_escaped():
    with AdminRest() as rest:
        assert AdminSchemas(rest.url).history("persistent://acme/cold/a b%2F/c") is None
        assert rest.asked == ["/schemas/acme/cold/a%20b%252F%2Fc/schemas"]


def test_a_topic_without_a_schema_has_no_history():
    assert history_of({"getSchemaResponses": []}) is None
    assert history_of(reason(404, "Topic not found")) is None


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (reason(401, f"no: {SECRET}"), AccessDeniedError),
        (reason(403, "no"), AccessDeniedError),
        (reason(503, "not now"), StoreUnavailableError),
        (Answer(status=404, body=b"<html>"), StoreError),
        ({"getSchemaResponses": [{"version": "one"}]}, SchemaError),
        ([1, 2], SchemaError),
    ],
)
def test_an_answer_that_is_none_names_its_place_and_no_secret(answer, kind):
    with raises_without(SECRET, kind) as caught:
        history_of(answer, token=SECRET)
    assert PLACE in str(caught.value)


def test_a_broker_that_is_gone_is_unavailable():
    provider = AdminSchemas(f"http://127.0.0.1:{free_port()}", attempts=1, timeout_s=5)
    with pytest.raises(StoreUnavailableError, match=PLACE):
        provider.history(TOPIC)


def test_the_token_is_shown_to_the_broker_and_to_nobody_else(tmp_path):
    (tmp_path / "token").write_text(f"{SECRET}\n")
    shown: list[str | None] = []

    def rule(request):
        shown.append(request.headers.get("authorization"))
        return Answer(status=200, body=json.dumps(ANSWER).encode())

    with AdminRest() as rest, open_tier(tmp_path) as tier:
        rest.rule = rule
        text = f"admin:url={rest.url},token_file={tmp_path / 'token'}"
        provider = open_provider(text, tier.store, {}, unread)
        assert provider.history(TOPIC) == history_from_rest(ANSWER)
        assert SECRET not in repr(provider)
    assert shown == [f"Bearer {SECRET}"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"url": "http://a/b"},
        {"url": "ftp://a"},
        {"url": "http://a", "ca_bundle": "/x"},
        {"url": "http://a", "x": 1},
    ],
)
def test_options_that_make_no_sense_are_refused(options, tmp_path):
    with open_tier(tmp_path) as tier, pytest.raises(OptionError):
        open_provider(("admin", options), tier.store, {}, unread)


def test_a_url_of_a_broker_is_a_source(tmp_path):
    with open_tier(tmp_path) as tier:
        assert isinstance(open_provider("http://broker:8080", tier.store, {}, unread), AdminSchemas)
        assert isinstance(
            open_provider("HTTPS://broker-1:8443,broker-2:8443", tier.store, {}, unread), AdminSchemas
        )
