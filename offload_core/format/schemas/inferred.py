"""A schema of JSON payloads, inferred from some of them: the definition of a record whose fields may all be null.

A field that is null or missing wherever it was looked for is a string. Times stay text: JSON has no type for them.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from offload_hooks.errors import SchemaError


def infer_definition(payloads: pa.Array) -> str:
    """The AVRO definition, as schemas of the type JSON have it, of the objects in a binary array.

    Raises:
        SchemaError: no payload, one that is no JSON object, or a field of two types.
    """
    objects = [payload for payload in payloads.to_pylist() if payload]
    if not objects:
        raise SchemaError("no schema can be inferred: there is no message with a payload")
    text = b"\n".join(objects)
    try:
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(newlines_in_values=True),
        )
    except pa.ArrowInvalid as error:
        raise SchemaError(
            "no schema can be inferred: the messages are not JSON objects of one form",
            found=str(error),
            hint="Give a definition: schemas=orders.avsc, or saved:path=orders.avsc,type=JSON.",
        ) from error
    return json.dumps(_record(table.schema, "Inferred"))


def _record(fields: pa.Schema | pa.StructType, name: str) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": each.name, "type": ["null", _type(each.type, f"{name}_{each.name}")], "default": None}
            for each in fields
        ],
    }


def _type(found: pa.DataType, name: str) -> Any:
    if pa.types.is_struct(found):
        return _record(found, name)
    if pa.types.is_list(found):
        return {"type": "array", "items": ["null", _type(found.value_type, f"{name}_item")]}
    words = {pa.int64(): "long", pa.float64(): "double", pa.bool_(): "boolean"}
    return words.get(found, "string")
