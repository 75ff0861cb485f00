"""User metadata of stores that keep none: the bytes of `<key>.metadata.json` beside an object.

`{"version": 1, "content_type": "…", "user_metadata": {…}}`, UTF-8 JSON (formats, section 7). A newer
version is refused with `UnsupportedVersionError`, anything else that is not this with `MetadataError`.
"""

from __future__ import annotations

import json

from offload_drivers.object_metadata import ObjectMetadata, is_text
from offload_hooks.errors import MetadataError, UnsupportedVersionError

SUFFIX = ".metadata.json"
VERSION = 1


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
    try:
        return metadata_from_json(json.loads(data), key)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise MetadataError("the metadata sidecar is not JSON", key=key) from error


def metadata_from_json(document: object, key: str) -> ObjectMetadata:
    """Read a sidecar's JSON object, which other files of a driver may hold as well."""
    if not isinstance(document, dict):
        raise MetadataError("the metadata sidecar is not a JSON object", key=key)
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise MetadataError("the metadata sidecar has no version", key=key, expected=VERSION, found=version)
    if version > VERSION:
        raise UnsupportedVersionError(
            "the metadata sidecar is of a newer version than this program knows",
            key=key,
            expected=f"{VERSION} or less",
            found=version,
            hint="Upgrade pulsar-offload.",
        )
    content_type, user_metadata = document.get("content_type"), document.get("user_metadata")
    if not is_text(content_type):
        raise MetadataError("the metadata sidecar has no content type that is text", key=key)
    if not isinstance(user_metadata, dict) or not all(
        is_text(t) for pair in user_metadata.items() for t in pair
    ):
        raise MetadataError("the metadata sidecar has no user metadata that maps text to text", key=key)
    return ObjectMetadata(
        content_type=str(content_type),
        user_metadata={name.lower(): value for name, value in user_metadata.items()},
    )
