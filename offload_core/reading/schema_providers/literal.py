"""A schema that stands in an option: the same for all topics, and for whatever version a message names."""

from __future__ import annotations

from typing import Any

from offload_core.format.schemas.history import history_from_rest
from offload_core.format.schemas.primitives import PRIMITIVE_TYPES
from offload_hooks.errors import OptionError, SchemaError
from offload_hooks.json_text import read_json
from offload_hooks.schemas import SchemaHistory, SchemaVersion


class LiteralSchema:
    """The schema provider `literal`.

    Args:
        definition: a schema as JSON, or what the broker's admin REST answers of a topic's schemas.
        type: Pulsar's name of the schema's type; with one of a primitive type there is no definition. Without, what the
            definition looks like: AVRO or PROTOBUF_NATIVE.
    """

    def __init__(self, definition: str = "", type: str = "") -> None:  # noqa: A002 - the option's name
        kind = type.upper()
        if kind in PRIMITIVE_TYPES:
            self._history = _for_all(SchemaVersion(version=0, type=kind))
            return
        declared = read_json(definition, "a literal schema", error=OptionError)
        try:
            if isinstance(declared, dict) and (
                "getSchemaResponses" in declared or {"version", "type", "data"} <= declared.keys()
            ):
                self._history = history_from_rest(declared)
                return
        except SchemaError as error:
            raise OptionError(f"a literal schema has another form: {error}") from error
        kind = kind or type_of_definition(declared)
        self._history = _for_all(SchemaVersion(version=0, type=kind, definition=definition))

    def history(self, topic: str) -> SchemaHistory:
        """See `SchemaProvider`: the same for every topic."""
        del topic
        return self._history

    def close(self) -> None:
        """Nothing is open."""


def type_of_definition(declared: Any) -> str:
    """The schema type of a definition that comes without one."""
    is_native = isinstance(declared, dict) and "fileDescriptorSet" in declared
    return "PROTOBUF_NATIVE" if is_native else "AVRO"


def _for_all(version: SchemaVersion) -> SchemaHistory:
    return SchemaHistory(versions=(version,), stands_for_all=True)
