"""Rows of messages against what Pulsar's own clients read from the same topics (`expected.jsonl.gz`).

Rows are dicts by our column names, from wherever they were read: Arrow, the command line, Spark. Bytes may
be any bytes-like object, times any aware datetime, properties a dict or pairs. What the fields of the
expected rows mean: `tests/golden/README.md`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from golden import BROKER, topic_rows

COLUMNS = (
    "value",
    "__key",
    "__topic",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__partition",
    "__sequenceId",
    "__producerName",
    "__ledgerId",
    "__entryId",
    "__batchIndex",
    "__batchSize",
    "__keyIsBase64",
    "__orderingKey",
    "__schemaVersion",
)
"""The columns that the comparison needs."""

_NOT_COMPARED = {"value"}  # wrong for nested lists of the topic `json`; size and sha256 are right


def assert_topic_is_as_expected(rows: Iterable[Mapping[str, Any]], topic: str, broker: Path = BROKER) -> None:
    """`rows` are what the clients of this broker read from `persistent://acme/cold/<topic>`, all in that order."""
    expected = {place_of_expected(row): row for row in topic_rows(topic, broker)}
    found: list[tuple[int, int, int]] = []
    for row in rows:
        assert row["__topic"] == f"persistent://acme/cold/{topic}"
        place = (row["__ledgerId"], row["__entryId"], row["__batchIndex"])
        assert place in expected, f"{place} was read by no client"
        wanted = {name: value for name, value in expected[place].items() if name not in _NOT_COMPARED}
        made = as_expected(row)
        assert {name: made[name] for name in wanted} == wanted
        found.append(place)
    assert found == list(expected)


def place_of_expected(row: Mapping[str, Any]) -> tuple[int, int, int]:
    """Ledger, entry, batch index."""
    return row["ledger"], row["entry"], row["batch_index"]


def as_expected(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as `expected.jsonl.gz` has it."""
    key = row["__key"]
    if key is not None:
        key = _base64(key) if row["__keyIsBase64"] else bytes(key).decode()
    value = b"" if row["value"] is None else bytes(row["value"])
    return {
        "ledger": row["__ledgerId"],
        "entry": row["__entryId"],
        "partition": row["__partition"],
        "batch_index": row["__batchIndex"],
        "batch_size": row["__batchSize"],
        "key": key,
        "has_key": key is not None,
        "key_b64_encoded": row["__keyIsBase64"],
        "ordering_key_b64": _base64(row["__orderingKey"]),
        "properties": _as_dict(row["__messageProperties"]),
        "publish_time": _milliseconds(row["__publishTime"]),
        "event_time": _milliseconds(row["__eventTime"]),
        "producer_name": row["__producerName"],
        "sequence_id": row["__sequenceId"],
        "null_value": row["value"] is None,
        "size": len(value),
        "data_len": len(value),
        "sha256": hashlib.sha256(value).hexdigest(),
        "schema_version_b64": _base64(row["__schemaVersion"]),
    }


def _base64(data: Any) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


def _as_dict(properties: Mapping[str, str] | Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(properties)


def _milliseconds(time: Any) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)
