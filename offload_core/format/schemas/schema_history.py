"""A topic's schemas as JSON: the form of the broker's admin REST, and that of files that we save.

Source: docs/formats/schemas.md.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from offload_hooks.errors import SchemaError, UnsupportedVersionError
from offload_hooks.json_text import read_json
from offload_hooks.schemas import SchemaHistory, SchemaVersion

FORMAT_VERSION = 1
MOST_BYTES = 64 << 20
"""A larger file of schemas is refused."""

_REST_FIELD = "getSchemaResponses"


def history_from_rest(answer: Any) -> SchemaHistory:
    """The history in the answer of `/admin/v2/schemas/<tenant>/<namespace>/<topic>/schemas` (or `/schema`).

    Raises:
        SchemaError: another form, or no version.
    """
    listed = answer[_REST_FIELD] if isinstance(answer, dict) and _REST_FIELD in answer else [answer]
    if not isinstance(listed, list) or not listed:
        raise SchemaError("a topic's schemas have another form", expected="a list of versions")
    versions = sorted((_version(each) for each in listed), key=lambda each: each.version)
    if len({each.version for each in versions}) < len(versions):
        raise SchemaError("a topic's schemas have two versions of one number")
    return SchemaHistory(versions=tuple(versions))


def parse_saved(data: bytes) -> tuple[str | None, SchemaHistory]:
    """The topic (None if the file does not say) and history of a saved file, or of an answer that was saved as it is.

    Raises:
        UnsupportedVersionError: a newer format.
        SchemaError: another form.
    """
    return history_from_saved(read_json(data, "a file of schemas", error=SchemaError))


def history_from_saved(saved: Any) -> tuple[str | None, SchemaHistory]:
    """The same of the file's JSON; errors as of `parse_saved`."""
    if not isinstance(saved, dict) or "schemas" not in saved:
        return None, history_from_rest(saved)
    version = saved.get("version")
    if type(version) is not int or version < 1:
        raise SchemaError("a file of schemas has no version", expected=FORMAT_VERSION, found=version)
    if version > FORMAT_VERSION:
        raise UnsupportedVersionError(
            "a file of schemas is of a newer version",
            expected=f"at most {FORMAT_VERSION}",
            found=version,
            hint="Upgrade pulsar-offload: pip install --upgrade pulsar-offload.",
        )
    topic = saved.get("topic")
    if not isinstance(topic, str):
        raise SchemaError("a file of schemas does not say of which topic", expected="topic")
    history = history_from_rest({_REST_FIELD: saved["schemas"]})
    return topic, replace(history, stands_for_all=saved.get("stands_for_all") is True)


def is_definition(declared: Any) -> bool:
    """True for the JSON of one schema's definition, false for that of a topic's schemas."""
    if not isinstance(declared, dict):
        return isinstance(declared, str)
    is_saved = {"version", "type", "data"} <= declared.keys()
    return not is_saved and ("fileDescriptorSet" in declared or "type" in declared)


def type_of_definition(declared: Any) -> str:
    """The schema type of a definition that comes without one."""
    is_native = isinstance(declared, dict) and "fileDescriptorSet" in declared
    return "PROTOBUF_NATIVE" if is_native else "AVRO"


def history_of_definition(definition: str, kind: str) -> SchemaHistory:
    """The history of one definition that stands for all versions; `kind` is Pulsar's name of its type."""
    version = SchemaVersion(version=0, type=kind, definition=definition)
    return SchemaHistory(versions=(version,), stands_for_all=True)


def saved_bytes(topic: str, history: SchemaHistory) -> bytes:
    """The content of a file that holds the whole history of a topic."""
    return (json.dumps(schema_to_json(topic, history), indent=2, ensure_ascii=False) + "\n").encode()


def schema_to_json(topic: str, history: SchemaHistory) -> dict[str, Any]:
    """The whole history of a topic, in the form of a saved file."""
    schemas = [
        {
            "version": each.version,
            "type": each.type,
            "timestamp": each.timestamp_ms,
            "properties": dict(each.properties),
            "data": each.definition,
        }
        for each in history.versions
    ]
    of_all = {"stands_for_all": True} if history.stands_for_all else {}
    return {"version": FORMAT_VERSION, "topic": topic, **of_all, "schemas": schemas}


def _version(each: Any) -> SchemaVersion:
    if not isinstance(each, dict):
        raise SchemaError("a topic's schemas have another form", expected="versions as objects")
    number, kind, data = each.get("version"), each.get("type"), each.get("data", "")
    properties, time = each.get("properties") or {}, each.get("timestamp")
    if type(number) is not int or not isinstance(kind, str) or not isinstance(data, str | None):
        raise SchemaError("a version of a schema has another form", expected="version, type, data")
    if not isinstance(properties, dict) or not all(isinstance(text, str) for text in properties.values()):
        raise SchemaError("a version of a schema has properties that are not text")
    if time is not None and type(time) is not int:
        raise SchemaError("a version of a schema has a timestamp that is no number")
    return SchemaVersion(
        version=number,
        type=kind.upper(),
        definition=data or "",
        properties={str(name): text for name, text in properties.items()},
        timestamp_ms=time,
    )
