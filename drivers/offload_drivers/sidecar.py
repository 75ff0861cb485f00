"""User metadata of stores that keep none: the bytes of `<key>.metadata.json` beside an object.

`{"version": 1, "content_type": "…", "user_metadata": {…}}`, UTF-8 JSON (formats, section 7). A newer
version is refused with `UnsupportedVersionError`, anything else that is not this with `MetadataError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from offload_hooks.errors import MetadataError, OptionError, UnsupportedVersionError

SUFFIX = ".metadata.json"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMetadata:
    """What a store must remember of an object besides its bytes; metadata keys are in lower case."""

    content_type: str = "application/octet-stream"
    user_metadata: Mapping[str, str] = field(default_factory=dict)


def checked_metadata(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """Take a writer's metadata, its keys made lower case; `OptionError` for what is not text or collides."""
    lowered: dict[str, str] = {}
    for name, value in user_metadata.items():
        if not _is_text(name) or not _is_text(value):
            raise OptionError(f"user metadata must be text, and {name!r} is not", key=key)
        if name.lower() in lowered:
            raise OptionError(f"two keys of the user metadata differ in case only: {name!r}", key=key)
        lowered[name.lower()] = value
    if not _is_text(content_type):
        raise OptionError("the content type must be text", key=key)
    return ObjectMetadata(content_type=content_type, user_metadata=lowered)


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
    if not _is_text(content_type):
        raise MetadataError("the metadata sidecar has no content type that is text", key=key)
    if not isinstance(user_metadata, dict) or not all(
        _is_text(t) for pair in user_metadata.items() for t in pair
    ):
        raise MetadataError("the metadata sidecar has no user metadata that maps text to text", key=key)
    return ObjectMetadata(
        content_type=str(content_type),
        user_metadata={name.lower(): value for name, value in user_metadata.items()},
    )


def _is_text(value: object) -> bool:
    """Whether it is a str that UTF-8 can hold (JSON may smuggle in half a surrogate pair)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
