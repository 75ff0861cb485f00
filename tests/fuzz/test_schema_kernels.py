"""Kernels of schemas with bounds checks on: drawn schemas, columns and payloads, held equal to the reference readers.

One draw is a writer's and a reader's schema, a choice of columns, and 40 payloads, many of them with changed bytes.
Each payload is a case. All are decoded at once, and each by the reference implementation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from bounds_checked import run_checked
from drawn_schemas import drawn_avro, drawn_json, drawn_key_value, drawn_protobuf
from scenes.schemas import rows_of

from offload_core.format.schemas import cells, json_decoder
from offload_core.format.schemas.avro_reference import read_datum
from offload_core.format.schemas.avro_types import parse_avro
from offload_core.format.schemas.decoders import explain_inline, make_decoder, parse_key_value
from offload_core.format.schemas.json_decoder import JsonValues
from offload_core.format.schemas.payload_spans import spans_of
from offload_core.format.schemas.protobuf_reference import read_message
from offload_core.format.schemas.protobuf_types import parse_protobuf
from offload_hooks.errors import PayloadError, SchemaError

PAYLOADS = 40

json_decoder.FEW = 0


def draw_and_read(draw_one, draw):
    """One draw; schemas that do not go together are drawn again."""
    while True:
        # Little room at first, so that cells are counted for which there is none.
        cells._FIRST_ROOM = draw.choice([1, 2, 7, 1024])
        try:
            drawn = draw_one(draw, PAYLOADS)
            decoder = make_decoder(drawn.writer, drawn.reader, drawn.columns)
        except SchemaError:
            continue
        return check(drawn, decoder)


def check(drawn, decoder):
    """Decode all payloads at once, and each by the reference implementation."""
    read = _reference(drawn.writer, drawn.reader, drawn.columns)
    array, faults = decoder.decode(spans_of(pa.array(drawn.payloads, type=pa.binary())))
    array.validate(full=True)
    assert array.type == decoder.data_type
    for payload, value, fault in zip(drawn.payloads, rows_of(array), faults.tolist(), strict=True):
        is_right, expected = (True, None) if payload is None else read(payload)
        assert fault == (not is_right), (drawn, payload, fault)
        assert repr(value) == repr(expected), (drawn, payload, value, expected)
        if fault:
            assert payload is not None
            assert str(decoder.explain(payload))


def _reference(writer, reader, columns):
    """Reads one payload plainly: whether it is right, and its value."""
    if writer.type == "AVRO":
        written, wanted = parse_avro(writer.definition), parse_avro(reader.definition)

        def read_one(payload):
            return read_datum(payload, written, wanted, columns)

    elif writer.type == "PROTOBUF_NATIVE":
        message = parse_protobuf(reader)

        def read_one(payload):
            return read_message(payload, message, columns)

    elif writer.type == "KEY_VALUE":
        parts = parse_key_value(reader)
        inner = [_reference(part, part, None) for part in (parts.key, parts.value)]

        def read_one(payload):
            found = {}
            for name, part, read in zip(("key", "value"), explain_inline(payload), inner, strict=True):
                is_right, found[name] = (True, None) if part is None else read(part)
                if not is_right:
                    raise PayloadError(f"the {name} is not right")
            return found

    else:
        return _one_by_one(reader, columns)

    def read(payload):
        try:
            return True, read_one(payload)
        except PayloadError:
            return False, None

    return read


def _one_by_one(reader, columns):
    """Of what has no reference implementation: a payload for itself, JSON by the plain rules."""
    decoder = make_decoder(reader, reader, columns)
    decode = decoder._plainly if isinstance(decoder, JsonValues) else decoder.decode

    def read(payload):
        array, faults = decode(spans_of(pa.array([payload], type=pa.binary())))
        return not faults[0], rows_of(array)[0]

    return read


FAMILIES = {
    "avro": partial(draw_and_read, drawn_avro),
    "protobuf": partial(draw_and_read, drawn_protobuf),
    "key_value": partial(draw_and_read, drawn_key_value),
    "json": partial(draw_and_read, drawn_json),
}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_kernels_of_schemas_stay_within_bounds_in_very_many_cases():
    """75,000 payloads of each family, others each time."""
    run_checked(Path(__file__), seed=Random().randrange(1 << 40), cases=300_000 // PAYLOADS, timeout_s=7000)
