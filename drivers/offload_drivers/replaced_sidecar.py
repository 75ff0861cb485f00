"""Sidecars that tell an object from the one that it replaces, and which metadata of theirs belongs to which.

The drivers `hdfs` and `fsspec` write them. A sidecar as in `sidecar`, with two more fields that other readers skip:
`upload`, the id of the upload that wrote it, and, when an object was being replaced, `replaced`: that object's time of
modification in milliseconds, its length, its content type and user metadata. Data and sidecar cannot be renamed at
once, so for a moment, or after a crash, there is the old data with the new sidecar; the object is then that of
`replaced`. The new file's time or length differs from the old one's: the writer sees to that. Everything else, copies
with other times and sidecars of other writers among it, goes by the sidecar's own metadata.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.sidecar import VERSION, described_in, metadata_from_json, read_sidecar
from offload_hooks.json_text import INT64


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """Identity of a file, different from that of the one it replaces."""

    modified_ms: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The content of a sidecar.

    Attributes:
        upload_id: the upload that wrote it; empty if another program did.
        replaced: the file that was to be replaced, None if there was none, and `replaced_metadata`.
    """

    metadata: ObjectMetadata
    upload_id: str = ""
    replaced: FileIdentity | None = None
    replaced_metadata: ObjectMetadata = field(default_factory=ObjectMetadata)

    def of(self, file: FileIdentity) -> ObjectMetadata:
        """The metadata of this file."""
        return self.replaced_metadata if file == self.replaced else self.metadata


def encode(sidecar: Sidecar) -> bytes:
    """The sidecar's bytes."""
    document = {"version": VERSION, **_fields(sidecar.metadata), "upload": sidecar.upload_id}
    if sidecar.replaced is not None:
        document["replaced"] = {
            "modified_ms": sidecar.replaced.modified_ms,
            "length": sidecar.replaced.length,
            **_fields(sidecar.replaced_metadata),
        }
    return json.dumps(document, ensure_ascii=False).encode()


def decode(data: bytes, key: str) -> Sidecar:
    """Read the sidecar of the object `key`; `MetadataError` and `UnsupportedVersionError` as `sidecar`."""
    fields = read_sidecar(data, key)
    metadata = metadata_from_json(fields)
    upload_id = fields.values.get("upload")
    sidecar = Sidecar(metadata=metadata, upload_id=upload_id if isinstance(upload_id, str) else "")
    if not isinstance(fields.values.get("replaced"), dict):
        return sidecar
    replaced = fields.nested("replaced")
    return Sidecar(
        metadata=metadata,
        upload_id=sidecar.upload_id,
        replaced=FileIdentity(
            modified_ms=replaced.integer("modified_ms", INT64), length=replaced.integer("length")
        ),
        replaced_metadata=described_in(replaced),
    )


def _fields(metadata: ObjectMetadata) -> dict[str, Any]:
    return {"content_type": metadata.content_type, "user_metadata": dict(metadata.user_metadata)}
