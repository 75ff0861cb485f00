"""The manifests of a Parquet export: `_offload_export/<number>.json`, one for each commit. Format version 1.

The newest says how far each topic is exported, and all of them together which files there are. A newer version is
refused with `UnsupportedVersionError`, anything else that is not this with `MetadataError`. Source:
docs/formats/export-manifest.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from offload_core.catalogue import TopicName
from offload_core.export.model import ExportedFile, StagedUpload
from offload_core.scan import Position, parse_position
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import MetadataError, OptionError, UnsupportedVersionError

VERSION = 1
FOLDER = "_offload_export/"
MAX_MANIFEST_BYTES = 256 << 20
"""A larger one is refused: it would be one commit of a million files."""

_KEY = re.compile(rf"{re.escape(FOLDER)}(\d{{20}})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One commit: its files, and by topic the first position that is not exported after it."""

    number: int
    committed_at: datetime
    positions: Mapping[TopicName, Position]
    files: tuple[ExportedFile, ...]

    @property
    def key(self) -> str:
        """Where it is stored."""
        return f"{FOLDER}{self.number:020d}.json"


def number_of_key(key: str) -> int | None:
    """The number of the manifest that is stored there, None if none is."""
    match = _KEY.fullmatch(key)
    return int(match[1]) if match else None


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest's bytes."""
    document = {
        "version": VERSION,
        "number": manifest.number,
        "committed_at": manifest.committed_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        "positions": {str(topic): str(position) for topic, position in sorted(manifest.positions.items())},
        "files": [_encode_file(file) for file in manifest.files],
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def decode_manifest(data: bytes | memoryview, key: str) -> Manifest:
    """Read the manifest that is stored at `key`.

    Raises:
        UnsupportedVersionError, MetadataError.
    """
    try:
        document = json.loads(bytes(data))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise MetadataError("an export's manifest is not JSON", key=key) from error
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise MetadataError("an export's manifest has no version", key=key, expected=VERSION, found=version)
    if version > VERSION:
        raise UnsupportedVersionError(
            "an export's manifest is of a newer version than this program knows",
            key=key,
            expected=f"{VERSION} or less",
            found=version,
            hint="Upgrade pulsar-offload.",
        )
    try:
        manifest = Manifest(
            number=_typed(document["number"], int),
            committed_at=datetime.fromisoformat(document["committed_at"]),
            positions={
                TopicName(_typed(topic, str)): parse_position(position)
                for topic, position in document["positions"].items()
            },
            files=tuple(_decode_file(file) for file in document["files"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OptionError) as error:
        raise MetadataError(
            f"an export's manifest lacks a field, or it is of another kind: {error}", key=key
        ) from error
    if manifest.key != key:
        raise MetadataError("an export's manifest is not the one of its name", key=key, found=manifest.number)
    return manifest


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


def _decode_file(document: Mapping[str, Any]) -> ExportedFile:
    key = _typed(document["key"], str)
    upload = document["upload"]
    return ExportedFile(
        key=key,
        topic=_typed(document["topic"], str),
        date=None if document["date"] is None else _typed(document["date"], str),
        rows=_typed(document["rows"], int),
        size_bytes=_typed(document["size_bytes"], int),
        first=parse_position(document["first"]),
        last=parse_position(document["last"]),
        staged=None if upload is None else _decode_staged(upload, key),
    )


def _decode_staged(document: Mapping[str, Any], key: str) -> StagedUpload:
    receipts = []
    offset = 0
    for number, (length, tag) in enumerate(document["blocks"], 1):
        receipts.append(
            BlockReceipt(part_number=number, offset=offset, length=_typed(length, int), tag=_typed(tag, str))
        )
        offset += length
    upload = Upload(key=key, upload_id=_typed(document["id"], str))
    return StagedUpload(upload=upload, receipts=tuple(receipts))


def _typed(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
