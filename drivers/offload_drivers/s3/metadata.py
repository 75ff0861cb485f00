"""User metadata and content types as S3 keeps them, in headers: what would come back changed is an `OptionError`.

Names are tokens of HTTP, values printable ASCII without a space at either end, all of them together no more than
2 KB: Amazon S3 User Guide, "Working with object metadata". A value like `=?…?=` is taken for an encoded one
(RFC 2047) and decoded, so it is refused, too. An empty content type would be replaced by another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from typing import Any

from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
from offload_hooks import ObjectStat
from offload_hooks.errors import OptionError

MAX_METADATA_BYTES = 2048

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+\Z")
_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?\Z")
_ENCODED = re.compile(r"=\?.*\?=")


def s3_metadata(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """Take a writer's metadata, if S3 can keep it exactly."""
    metadata = checked_metadata(key, content_type, user_metadata)
    if not content_type or not _VALUE.match(content_type):
        raise OptionError(
            "the store keeps no content type like this", key=key, found=repr(content_type[:100])
        )
    for name, value in metadata.user_metadata.items():
        if not _NAME.match(name):
            raise OptionError(
                "the store keeps no user metadata of this name", key=key, found=repr(name[:100])
            )
        if not _VALUE.match(value) or _ENCODED.search(value):
            raise OptionError(
                f"the store cannot keep the user metadata {name!r} exactly",
                key=key,
                expected="printable ASCII, without a space at either end",
            )
    size_bytes = sum(len(name) + len(value) for name, value in metadata.user_metadata.items())
    if size_bytes > MAX_METADATA_BYTES:
        raise OptionError(
            "the user metadata is larger than the store takes",
            key=key,
            expected=f"{MAX_METADATA_BYTES} bytes or less",
            found=f"{size_bytes} bytes",
        )
    return metadata


def object_stat(key: str, head: Mapping[str, Any]) -> ObjectStat:
    """What the answer to a HEAD request says of an object."""
    return ObjectStat(
        key=key,
        size_bytes=head["ContentLength"],
        modified_at=head["LastModified"].astimezone(UTC),
        content_type=head.get("ContentType") or ObjectMetadata().content_type,
        user_metadata={name.lower(): value for name, value in head.get("Metadata", {}).items()},
        storage_class=head.get("StorageClass", "STANDARD"),  # S3 says any but this one
    )
