"""User metadata and content types as Azure's blobs keep them: headers, refused if they would not come back as given.

Azure takes names that are identifiers of C# (ASCII letters, digits and `_`, no digit first), case-preserving; values
are those of HTTP headers, which lose white space at their ends and are ASCII; all names and values together may have
8 KiB. An empty value is a header that clients and proxies may drop, so it is refused as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from azure.storage.blob import BlobProperties

from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
from offload_hooks import ObjectStat
from offload_hooks.errors import OptionError

MAX_METADATA_BYTES = 8 << 10
MAX_CONTENT_TYPE_BYTES = 1 << 10
FOLDER_MARK = "hdi_isfolder"
"""The metadata of blobs that stand for a folder: accounts with a hierarchical namespace, and Hadoop, make them."""

_DEFAULT_TYPE = "application/octet-stream"
_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?\Z")


def storable(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """A writer's metadata, names in lower case; `OptionError` for what Azure would refuse or change."""
    metadata = checked_metadata(key, content_type, user_metadata)
    for name, value in metadata.user_metadata.items():
        if not _NAME.match(name) or name == FOLDER_MARK:
            raise OptionError(
                f"Azure takes no user metadata of the name {name!r}",
                key=key,
                expected="ASCII letters, digits and _, no digit first",
            )
        if not _VALUE.match(value):
            raise OptionError(
                f"Azure does not keep the value of the user metadata {name!r} as it is",
                key=key,
                expected="printable ASCII, not empty, without white space at its ends",
            )
    size_bytes = sum(len(name) + len(value) for name, value in metadata.user_metadata.items())
    if size_bytes > MAX_METADATA_BYTES:
        raise OptionError(
            "Azure does not take this much user metadata",
            key=key,
            expected=f"{MAX_METADATA_BYTES:,} bytes or less",
            found=f"{size_bytes:,} bytes",
        )
    if not _VALUE.match(content_type) or len(content_type) > MAX_CONTENT_TYPE_BYTES:
        raise OptionError(
            "Azure does not keep this content type as it is",
            key=key,
            expected=f"printable ASCII, 1 to {MAX_CONTENT_TYPE_BYTES:,} characters",
        )
    return metadata


def is_folder(metadata: Mapping[str, str] | None) -> bool:
    """Whether a blob of this metadata stands for a folder."""
    return any(name.lower() == FOLDER_MARK and value == "true" for name, value in (metadata or {}).items())


def stat_of(key: str, blob: BlobProperties) -> ObjectStat:
    """A blob's properties as `stat` answers them."""
    return ObjectStat(
        key=key,
        size_bytes=blob.size,
        modified_at=blob.last_modified,
        content_type=blob.content_settings.content_type or _DEFAULT_TYPE,
        user_metadata={name.lower(): value for name, value in (blob.metadata or {}).items()},
        storage_class=blob.blob_tier,
    )
