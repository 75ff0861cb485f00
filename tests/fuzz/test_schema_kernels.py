"""Kernels of schemas with bounds checks on: drawn schemas, columns and payloads, held equal to the reference readers.

numba reads NUMBA_BOUNDSCHECK when it is imported, so the cases run in a process of their own: this module's, as a
program. A case is one payload of a drawn schema, read by the kernel among others and by the reference implementation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_PAYLOADS = 40
"""Payloads of one drawn schema."""

KINDS = ("avro", "protobuf", "key_value", "json")


def run(seed: int, kind: str, cases: int, timeout_s: float) -> int:
    """Run cases with bounds checks on; how many were."""
    paths = [str(_ROOT), str(_ROOT / "hooks"), str(_ROOT / "tests" / "support")]
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        [sys.executable, __file__, str(seed), kind, str(cases)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return int(ended.stdout.split()[-1])


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_stay_within_their_arrays_and_read_as_the_reference_does(kind: str) -> None:
    assert run(1, kind, 4_000, 300) >= 4_000


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("kind", "cases"), [("avro", 400_000), ("protobuf", 400_000), ("key_value", 150_000), ("json", 100_000)]
)
def test_a_million_cases_stay_within_their_arrays(kind: str, cases: int) -> None:
    """1,050,000 cases in all. The seed differs by the night, and is in the output of a failure."""
    seed = Random().randrange(1 << 30)
    assert run(seed, kind, cases, 7000) >= cases


# --- the program -------------------------------------------------------------------------------


def _run_cases(seed: int, kind: str, cases: int) -> int:
    import drawn_schemas

    from offload_core.schemas import cells
    from offload_hooks.errors import SchemaError

    draw_one = getattr(drawn_schemas, f"drawn_{kind}")
    done = round_ = refused = 0
    while done < cases:
        draw = Random(f"{seed} {kind} {round_}")
        # Little room at first, so that cells are counted for which there is none.
        cells._FIRST_ROOM = draw.choice([1, 2, 7, 1024])
        try:
            try:
                drawn = draw_one(draw, _PAYLOADS)
                _check(drawn)
            except SchemaError:  # schemas that do not go together
                refused += 1
            else:
                done += len(drawn.payloads)
        except BaseException:
            print("fails with the seed", seed, kind, "in round", round_, file=sys.stderr)
            raise
        round_ += 1
    assert refused < round_ * 0.6, (refused, round_)
    return done


def _check(drawn: Any) -> None:
    import pyarrow as pa
    from avro_data import rows_of

    from offload_core.schemas.decoders import make_decoder
    from offload_core.schemas.spans import spans_of

    decoder = make_decoder(drawn.writer, drawn.reader, drawn.columns)
    read = _reference(drawn.writer, drawn.reader, drawn.columns)
    array, faults = decoder.decode(spans_of(pa.array(drawn.payloads, type=pa.binary())))
    array.validate(full=True)
    assert array.type == decoder.data_type
    for payload, value, fault in zip(drawn.payloads, rows_of(array), faults.tolist(), strict=True):
        is_right, expected = (True, None) if payload is None else read(payload)
        assert fault == (not is_right), (drawn, payload, fault)
        assert repr(value) == repr(expected), (drawn, payload, value, expected)
        if fault:
            assert str(decoder.explain(payload))


def _reference(writer: Any, reader: Any, columns: Any) -> Callable[[bytes], tuple[bool, Any]]:
    """Reads one payload plainly: whether it is right, and its value."""
    from offload_core.schemas.avro.plain import read_datum
    from offload_core.schemas.avro.types import parse_avro
    from offload_core.schemas.key_value import explain_inline, parse_key_value
    from offload_core.schemas.protobuf.plain import read_message
    from offload_core.schemas.protobuf.types import parse_protobuf
    from offload_hooks.errors import PayloadError

    if writer.type == "AVRO":
        written, wanted = parse_avro(writer.definition), parse_avro(reader.definition)

        def read_one(payload: bytes) -> Any:
            return read_datum(payload, written, wanted, columns)

    elif writer.type == "PROTOBUF_NATIVE":
        message = parse_protobuf(reader)

        def read_one(payload: bytes) -> Any:
            return read_message(payload, message, columns)

    elif writer.type == "KEY_VALUE":
        parts = parse_key_value(reader)
        inner = [_reference(part, part, None) for part in (parts.key, parts.value)]

        def read_one(payload: bytes) -> Any:
            found = {}
            for name, part, read in zip(("key", "value"), explain_inline(payload), inner, strict=True):
                is_right, found[name] = (True, None) if part is None else read(part)
                if not is_right:
                    raise PayloadError(f"the {name} is not right")
            return found

    else:
        return _one_by_one(reader, columns)

    def read(payload: bytes) -> tuple[bool, Any]:
        try:
            return True, read_one(payload)
        except PayloadError:
            return False, None

    return read


def _one_by_one(reader: Any, columns: Any) -> Callable[[bytes], tuple[bool, Any]]:
    """Of what has no reference implementation: a payload for itself, JSON by the plain rules."""
    import pyarrow as pa
    from avro_data import rows_of

    from offload_core.schemas.decoders import make_decoder
    from offload_core.schemas.json_values import JsonValues
    from offload_core.schemas.spans import spans_of

    decoder = make_decoder(reader, reader, columns)
    decode = decoder._plainly if isinstance(decoder, JsonValues) else decoder.decode

    def read(payload: bytes) -> tuple[bool, Any]:
        array, faults = decode(spans_of(pa.array([payload], type=pa.binary())))
        return not faults[0], rows_of(array)[0]

    return read


if __name__ == "__main__":
    from numba.core import config

    assert config.BOUNDSCHECK == 1
    print(_run_cases(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
