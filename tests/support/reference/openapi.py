"""The service's REST as an OpenAPI document, from its routes; and a page of it."""

import json
import re

from prometheus_client import CollectorRegistry

import pulsar_offload
from offload_core.interfaces.service.app import make_app
from offload_core.interfaces.service.served_topics import RecordedTopics
from offload_core.metadata.policies import parse_policies
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.configuration import ServiceSettings
from offload_core.writing.managed_ledger import policies_by_name
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.testing import MemoryMetadataStore
from reference.requests import REQUESTS

_HEAD = """\
# REST

*For programmers who call the service: each path, its parameters and answers.*

What [`offload serve`](../service.md) answers, generated from its routes (`make reference`): Pulsar's own admin paths,
so that `pulsar-admin` can ask it. The same as an [OpenAPI document](openapi.json).

Errors are `{"reason": "…"}` with a status: 400 and 412 for what was asked for wrongly, 401 and 403 for who may not, 404
for what there is not, 409 for what is done already or was changed by others, 503 and 504 for a store that does not
answer.

| Request | |
|---|---|
"""


def rest_page():
    """The page."""
    rows = (
        f"| `{method.upper()} {path}` | {_text_of(method, path).what} |\n" for method, path in _requests()
    )
    return _HEAD + "".join(rows)


def openapi_document():
    """The document, as JSON."""
    paths = {}
    for method, path in _requests():
        paths.setdefault(path, {})[method] = _operation(method, path)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "pulsar-offload",
            "version": pulsar_offload.__version__,
            "description": "Pulsar's admin requests that `offload serve` answers.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["reason"],
                    "properties": {"reason": {"type": "string"}},
                }
            },
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _requests():
    """Method and path of all."""
    store = MemoryMetadataStore()
    policies = PolicyStore(store, broker=parse_policies({}))
    topics = RecordedTopics(ManagedLedgerRecords(store), None, policies_by_name(policies))
    app = make_app(
        store, policies, topics, tokens=None, registry=CollectorRegistry(), service=ServiceSettings()
    )
    found = [
        (method.lower(), re.sub(r":\w+}", "}", route.path))
        for route in app.routes
        for method in sorted(route.methods - {"HEAD"})
    ]
    assert len(set(found)) == len(found)
    return found


def _text_of(method, path):
    return REQUESTS[f"{method.upper()} {path}"]


def _operation(method, path):
    text = _text_of(method, path)
    operation = {
        "summary": re.sub(r"\[(.+?)\]\(.*?\)", r"\1", text.what),
        "operationId": re.sub(r"\W+", "_", f"{method} {path.removeprefix('/admin/')}").strip("_"),
        "parameters": list(_parameters(path, text)),
        "responses": {
            str(text.status): _answer(text),
            "default": {
                "description": "an error",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if text.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"type": text.takes}}},
        }
    return operation


def _answer(text):
    if text.gives is None:
        return {"description": "done"}
    content = {text.content: {"schema": {"type": text.gives}}}
    return {"description": "the answer", "content": content}


def _parameters(path, text):
    for name in re.findall(r"{(\w+)}", path):
        kind = "integer" if name == "version" else "string"
        yield {"name": name, "in": "path", "required": True, "schema": {"type": kind}}
    for name in text.asks:
        yield {"name": name, "in": "query", "schema": {"type": "string"}}
