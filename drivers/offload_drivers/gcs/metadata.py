"""What Google Cloud Storage keeps of an object besides its bytes, and what it cannot keep.

Custom metadata is text of any script (JSON API), but no more than 8 KiB of names and values together
(https://cloud.google.com/storage/quotas). Control characters do not survive as HTTP headers, nor do names that are
empty. All of these are refused with `OptionError`.
"""

from __future__ import annotations

from collections.abc import Mapping

from offload_drivers.object_metadata import ObjectMetadata, checked_metadata
from offload_hooks.errors import OptionError

MAX_USER_METADATA_BYTES = 8 << 10


def checked_gcs_metadata(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """A writer's metadata, if the store keeps it as it is."""
    metadata = checked_metadata(key, content_type, user_metadata)
    if not content_type or not content_type.isascii() or _has_control(content_type):
        raise OptionError("the content type must be printable ASCII text", key=key, found=repr(content_type))
    for name, value in metadata.user_metadata.items():
        if not name or name != name.strip() or _has_control(name) or _has_control(value):
            raise OptionError(
                f"user metadata of this store has no empty or blank names and no control characters: {name!r}",
                key=key,
            )
    size = sum(len(text.encode()) for pair in metadata.user_metadata.items() for text in pair)
    if size > MAX_USER_METADATA_BYTES:
        raise OptionError(
            "user metadata is too large for this store",
            key=key,
            expected=f"{MAX_USER_METADATA_BYTES:,} bytes or fewer in all names and values",
            found=f"{size:,} bytes",
        )
    return metadata


def _has_control(text: str) -> bool:
    return any(character < " " or character == "\x7f" for character in text)
