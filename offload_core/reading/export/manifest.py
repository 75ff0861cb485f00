"""The manifests of an export to a folder: `_offload_export/<number>.json`, one for each commit. Format version 1.

The newest has the next position of each topic. Polars takes every file of a folder that has bytes for data, so a
manifest moves into a Parquet file without rows once its files are visible, and its own file stays, empty. A newer
version is refused with `UnsupportedVersionError`, anything else that is not this with `MetadataError`. Source:
docs/formats/export-manifest.md.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.export_files import NO_VALUE, ExportedFile, FileFormat, StagedUpload
from offload_core.reading.scan import Position, parse_position
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import MetadataError, OptionError
from offload_hooks.json_text import WHOLE, JsonObject

VERSION = 1
PARQUET: FileFormat = "parquet"
FOLDER = "_offload_export/"
SETTLED_FOLDER = f"topic={NO_VALUE}/date={NO_VALUE}/"
"""A partition as any other for readers that want each file in one; of no topic, so it has no rows."""
_SETTLED = b"pulsar-offload.export"
"""The key of a manifest in the metadata of a Parquet file."""
MAX_MANIFEST_BYTES = 256 << 20
"""A larger one is refused: it would be one commit of a million files."""

_KEY = re.compile(rf"{re.escape(FOLDER)}(\d{{20}})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A commit: its files, and by topic the first position that is not exported after it.

    Attributes:
        columns: of the folder's files by name, with their types; None of a folder of an earlier version.
        kind: of its files.
    """

    number: int
    committed_at: datetime
    positions: Mapping[TopicName, Position]
    files: tuple[ExportedFile, ...]
    columns: Mapping[str, str] | None = None
    kind: str = PARQUET

    @property
    def key(self) -> str:
        """The key of the manifest's object."""
        return f"{FOLDER}{self.number:020d}.json"


def settled_key_of(key: str) -> str:
    """The key of the Parquet file that has the manifest of this key in the end; readers with hidden files skip it."""
    return f"{SETTLED_FOLDER}_{key.removeprefix(FOLDER).removesuffix('.json')}.parquet"


def number_of_key(key: str) -> int | None:
    """The number of the manifest that is stored there, None if none is."""
    match = _KEY.fullmatch(key)
    return int(match[1]) if match else None


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest's bytes."""
    document = {
        "version": VERSION,
        "number": manifest.number,
        "committed_at": manifest.committed_at.astimezone(timezone.utc).isoformat(timespec="milliseconds"),
        "positions": {str(topic): str(position) for topic, position in sorted(manifest.positions.items())},
        "files": [_encode_file(file) for file in manifest.files],
    }
    if manifest.columns is not None:
        document["columns"] = dict(manifest.columns)
    if manifest.kind != PARQUET:
        document["format"] = manifest.kind
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def decode_manifest(data: bytes | memoryview, key: str) -> Manifest:
    """Read the manifest that is stored at `key`.

    Raises:
        UnsupportedVersionError, MetadataError.
    """
    fields = JsonObject.read(
        bytes(data), "an export's manifest", error=MetadataError, key=key, max_bytes=MAX_MANIFEST_BYTES
    )
    fields.check_version(VERSION)
    try:
        committed_at = datetime.fromisoformat(fields.text("committed_at"))
    except ValueError:
        raise fields.wrong("committed_at", "a time as in ISO 8601") from None
    manifest = Manifest(
        number=fields.integer("number"),
        committed_at=committed_at,
        positions=positions_in(fields),
        files=tuple(map(_decode_file, fields.nested_objects("files"))),
        columns=None if fields.values.get("columns") is None else fields.texts("columns"),
        kind=fields.optional_text("format") or PARQUET,
    )
    if manifest.key != key:
        raise MetadataError("an export's manifest is not the one of its name", key=key, found=manifest.number)
    return manifest


def encode_settled(manifest: Manifest, schema: pa.Schema) -> bytes:
    """The bytes of a Parquet file of this schema that has no rows, and the manifest in its metadata."""
    file = io.BytesIO()
    pq.write_table(schema.with_metadata({_SETTLED: encode_manifest(manifest)}).empty_table(), file)
    return file.getvalue()


def decode_settled(data: bytes | memoryview, key: str) -> Manifest:
    """Read the manifest of `key` from the Parquet file that has it.

    Raises:
        UnsupportedVersionError, MetadataError.
    """
    try:
        found = pq.read_metadata(pa.BufferReader(data)).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise MetadataError("an export's state is no Parquet file", key=settled_key_of(key)) from error
    if _SETTLED not in found:
        raise MetadataError("a Parquet file has no state of an export", key=settled_key_of(key))
    return decode_manifest(found[_SETTLED], key)


def positions_in(fields: JsonObject) -> dict[TopicName, Position]:
    """The next position of each topic: the field `positions` of a manifest, or of a table's state.

    Raises:
        MetadataError: the field is not there, or of another kind.
    """
    positions = fields.nested("positions")
    return {TopicName(topic): _position(positions, topic) for topic in positions.values}


def _encode_file(file: ExportedFile) -> dict[str, Any]:
    return {
        "key": file.key,
        "topic": file.topic,
        "date": file.date,
        "rows": file.rows,
        "size_bytes": file.size_bytes,
        "first": str(file.first),
        "last": str(file.last),
        "upload": None if file.staged is None else _encode_staged(file.staged),
    }


def _encode_staged(staged: StagedUpload) -> dict[str, Any]:
    return {
        "id": staged.upload.upload_id,
        "blocks": [[receipt.length, receipt.tag] for receipt in staged.receipts],
    }


def _decode_file(fields: JsonObject) -> ExportedFile:
    key = fields.text("key")
    return ExportedFile(
        key=key,
        topic=fields.text("topic"),
        date=fields.optional_text("date"),
        rows=fields.integer("rows"),
        size_bytes=fields.integer("size_bytes"),
        first=_position(fields, "first"),
        last=_position(fields, "last"),
        staged=None if fields.values.get("upload") is None else _decode_staged(fields.nested("upload"), key),
    )


def _decode_staged(fields: JsonObject, key: str) -> StagedUpload:
    receipts = []
    offset = 0
    for number, block in enumerate(fields.array("blocks"), 1):
        match block:
            case [int(length), str(tag)] if type(length) is int and length in WHOLE:
                receipts.append(BlockReceipt(part_number=number, offset=offset, length=length, tag=tag))
            case _:
                raise fields.wrong("blocks", "a list of lengths with tags")
        offset += length
    upload = Upload(key=key, upload_id=fields.text("id"))
    return StagedUpload(upload=upload, receipts=tuple(receipts))


def _position(fields: JsonObject, name: str) -> Position:
    try:
        return parse_position(fields.text(name))
    except OptionError as error:
        raise fields.wrong(name, "a position, as ledger:entry:batch") from error
