"""An object of Google Cloud Storage as its JSON API writes it, and what is read from its headers.

See https://cloud.google.com/storage/docs/json_api/v1/objects#resource.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import google_crc32c

from offload_drivers.object_metadata import ObjectMetadata
from offload_hooks import ObjectStat
from offload_hooks.errors import StoreError
from offload_hooks.json_text import whole_number

RESOURCE = "name,size,updated,contentType,metadata,crc32c,generation,storageClass"
"""The fields of a resource that are asked for."""

LISTED = "name,size,updated,crc32c,generation,storageClass"
"""The fields of a resource that a listing is asked for."""

_SUMMED_AT_ONCE = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsObject:
    """An object as the store answers it; `crc32c` is in base 64, as the store writes it."""

    name: str
    size_bytes: int
    modified_at: datetime
    content_type: str = ""
    user_metadata: Mapping[str, str] = field(default_factory=dict)
    crc32c: str = ""
    generation: str = ""
    storage_class: str | None = None

    def as_stat(self, key: str) -> ObjectStat:
        """What `stat` answers of it."""
        return ObjectStat(
            key=key,
            size_bytes=self.size_bytes,
            modified_at=self.modified_at,
            content_type=self.content_type or ObjectMetadata().content_type,
            user_metadata={name.lower(): value for name, value in self.user_metadata.items()},
            storage_class=self.storage_class,
            version=self.generation or None,
        )

    def holds(self, size_bytes: int, crc32c: str, metadata: ObjectMetadata) -> bool:
        """Whether it is an object of these bytes and this metadata."""
        found = (self.size_bytes, self.crc32c, self.content_type, dict(self.user_metadata))
        return found == (size_bytes, crc32c, metadata.content_type, dict(metadata.user_metadata))


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """An object to be made of others, in their order."""

    name: str
    sources: Sequence[GcsObject]
    metadata: ObjectMetadata = field(default_factory=ObjectMetadata)
    create_only: bool = False


def crc32c_of(data: memoryview) -> str:
    """The CRC32C of bytes as the store writes it."""
    crc32c = 0
    for start in range(0, data.nbytes, _SUMMED_AT_ONCE):
        # The library takes nothing but `bytes`, hence a copy.
        crc32c = google_crc32c.extend(crc32c, bytes(data[start : start + _SUMMED_AT_ONCE]))
    return base64.b64encode(crc32c.to_bytes(4, "big")).decode()


def stored(resource: Mapping[str, Any]) -> GcsObject:
    """The object of a resource in JSON."""
    try:
        size_bytes = whole_number(str(resource["size"]))
        modified_at = datetime.fromisoformat(resource["updated"].replace("Z", "+00:00")).astimezone(
            timezone.utc
        )
        user_metadata = resource.get("metadata") or {}
        texts = {"": resource["name"], **user_metadata}
        if size_bytes is None or not all(isinstance(each, str) for each in texts.values()):
            raise ValueError("a size that is none, or a name or metadata that is no text")
        return GcsObject(
            name=resource["name"],
            size_bytes=size_bytes,
            modified_at=modified_at,
            content_type=resource.get("contentType", ""),
            user_metadata=user_metadata,
            crc32c=resource.get("crc32c", ""),
            generation=resource.get("generation", ""),
            storage_class=resource.get("storageClass"),
        )
    except (LookupError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise StoreError("the store's answer is not that of Google Cloud Storage") from error


def size_of(content_range: str) -> int | None:
    """The object's size of a header like `bytes 0-9/100` or `bytes */100`."""
    return whole_number(content_range.rpartition("/")[2])
