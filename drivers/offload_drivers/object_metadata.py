"""What a store must remember of an object besides its bytes, as a writer gives it and as it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from offload_hooks import ObjectStat
from offload_hooks.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMetadata:
    """Content type and user metadata of an object; metadata keys are in lower case."""

    content_type: str = "application/octet-stream"
    user_metadata: Mapping[str, str] = field(default_factory=dict)

    def stat(self, key: str, size_bytes: int, modified_at: datetime) -> ObjectStat:
        """The stat of an object that has it."""
        return ObjectStat(
            key=key,
            size_bytes=size_bytes,
            modified_at=modified_at,
            content_type=self.content_type,
            user_metadata=self.user_metadata,
        )


def checked_metadata(key: str, content_type: str, user_metadata: Mapping[str, str]) -> ObjectMetadata:
    """Take a writer's metadata, its keys made lower case; `OptionError` for what is not text or collides."""
    lowered: dict[str, str] = {}
    for name, value in user_metadata.items():
        if not is_text(name) or not is_text(value):
            raise OptionError(f"user metadata must be text, and {name!r} is not", key=key)
        if name.lower() in lowered:
            raise OptionError(f"two keys of the user metadata differ in case only: {name!r}", key=key)
        lowered[name.lower()] = value
    if not is_text(content_type):
        raise OptionError("the content type must be text", key=key)
    return ObjectMetadata(content_type=content_type, user_metadata=lowered)


def is_text(value: object) -> bool:
    """True for a str that UTF-8 can hold (JSON may smuggle in half a surrogate pair)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
