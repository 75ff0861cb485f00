"""User metadata of stores that keep none: the bytes of `<key>.metadata.json` beside an object.

`{"version": 1, "content_type": "…", "user_metadata": {…}}`, UTF-8 JSON (formats, section 7). A newer
version is refused with `UnsupportedVersionError`, anything else that is not this with `MetadataError`.
"""

from __future__ import annotations

import json

from offload_drivers.object_metadata import ObjectMetadata
from offload_hooks.errors import MetadataError
from offload_hooks.json_text import JsonObject

SUFFIX = ".metadata.json"
VERSION = 1
MAX_BYTES = 1 << 20
"""A longer sidecar is refused: stores that keep user metadata keep some kilobytes."""


def encode_sidecar(metadata: ObjectMetadata) -> bytes:
    """The sidecar's bytes."""
    document = {
        "version": VERSION,
        "content_type": metadata.content_type,
        "user_metadata": dict(metadata.user_metadata),
    }
    return json.dumps(document, ensure_ascii=False).encode()


def decode_sidecar(data: bytes, key: str) -> ObjectMetadata:
    """Read the sidecar of the object `key`."""
    return metadata_from_json(read_sidecar(data, key))


def read_sidecar(data: bytes, key: str) -> JsonObject:
    """The fields of the sidecar of the object `key`; a driver may have more of its own."""
    return JsonObject.read(data, "the metadata sidecar", error=MetadataError, key=key, max_bytes=MAX_BYTES)


def metadata_from_json(fields: JsonObject) -> ObjectMetadata:
    """Read the metadata in a sidecar's JSON object, which other files of a driver may hold as well."""
    fields.check_version(VERSION)
    return described_in(fields)


def described_in(fields: JsonObject) -> ObjectMetadata:
    """The same of an object within one, which has no version."""
    user_metadata = fields.texts("user_metadata")
    lowered = {name.lower(): value for name, value in user_metadata.items()}
    if len(lowered) < len(user_metadata):
        raise fields.wrong("user_metadata", "names that differ in more than case")
    return ObjectMetadata(content_type=fields.text("content_type"), user_metadata=lowered)
