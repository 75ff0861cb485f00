"""Histories of schemas, tiers of messages that name their versions, and what typed reads of them give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from entries import entry, pip17_object
from tiers import in_memory

from offload_core.schemas.decoders import make_decoder
from offload_core.schemas.spans import spans_of
from offload_hooks.schemas import SchemaHistory, SchemaVersion
from pulsar_offload import TierReader

TOPIC = "persistent://acme/cold/orders"


class Known:
    """A schema provider that knows these histories, and what it was asked for."""

    def __init__(self, histories: Mapping[str, SchemaHistory]) -> None:
        self._histories = histories
        self.asked: list[str] = []

    def history(self, topic: str) -> SchemaHistory | None:
        self.asked.append(topic)
        return self._histories.get(topic)

    def close(self) -> None:
        self.asked.append("close")


def version(number: int, kind: str, definition: Any = "", **properties: str) -> SchemaVersion:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return SchemaVersion(version=number, type=kind, definition=text, properties=properties)


def history(*versions: SchemaVersion) -> SchemaHistory:
    return SchemaHistory(versions=versions)


def record(**fields: Any) -> dict[str, Any]:
    """An AVRO record; a field is its type, or a pair of type and default."""
    return {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": name, "type": of[0], "default": of[1]}
            if isinstance(of, tuple)
            else {"name": name, "type": of}
            for name, of in fields.items()
        ],
    }


def tier_of(
    *messages: tuple[bytes | None, int | None] | tuple[bytes | None, int | None, bytes],
) -> TierReader:
    """A tier of one ledger: payload (None for null), the number of its schema's version, and perhaps its key."""
    made = []
    for payload, number, *key in messages:
        named: dict[str, Any] = {} if number is None else {"schema_version": number.to_bytes(8, "big")}
        if payload is None:
            named["null_value"] = True
        if key:
            named |= {"partition_key": key[0].decode()}
        made.append(entry(payload or b"", **named))
    return in_memory(pip17_object(made))


def decode_all(
    payloads: Sequence[bytes | None], writer: SchemaVersion, reader: SchemaVersion | None = None
) -> tuple[pa.Array, list[bool]]:
    """The values of payloads by the decoder of a version, and which of them are not right."""
    decoder = make_decoder(writer, reader or writer)
    array, faults = decoder.decode(spans_of(pa.array(payloads, type=pa.binary())))
    array.validate(full=True)
    assert array.type == decoder.data_type
    for payload, fault in zip(payloads, np.asarray(faults).tolist(), strict=True):
        if fault:
            assert payload is not None
            assert str(decoder.explain(payload))
    return array, np.asarray(faults).tolist()
