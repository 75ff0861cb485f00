"""Keys of a tier in a bucket to the store's own names under a prefix, and back.

A key is a relative path with `/` between its parts. Refused with `InvalidKeyError`: what is absolute or has a part
that is empty, `.` or `..`, control characters, a backslash, text that UTF-8 cannot hold, more bytes than the store
takes, and the driver's own folder `.offload-uploads` at the tier's root. What cannot be a key is not listed, either.
"""

from __future__ import annotations

from dataclasses import dataclass

from offload_hooks.errors import InvalidKeyError, OptionError

STAGING = ".offload-uploads"
"""The folder at a tier's root where a driver keeps what it must remember of uploads."""

MAX_NAME_BYTES = 1024
"""The longest name of an object in S3, GCS and Azure, in bytes of UTF-8 (Azure: characters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpace:
    """The keys of one tier.

    Attributes:
        prefix: what all names in the bucket begin with; empty, or ending with `/`.
        own_suffix: names that end so are the driver's own (sidecars), in any case of letters; empty for none.
    """

    prefix: str = ""
    own_suffix: str = ""

    def name(self, key: str) -> str:
        """The name in the bucket of a key's object; `InvalidKeyError` for what is no key."""
        fault = self._fault(key)
        if fault:
            shown = str(key).encode("utf-8", "backslashreplace").decode()
            raise InvalidKeyError(f"a key must not {fault}", key=shown)
        return self.prefix + key

    def staging_name(self, name: str = "") -> str:
        """The name in the bucket of something in the driver's own folder; the folder's, with `/`, for none."""
        return f"{self.prefix}{STAGING}/{name}"

    def prefix_name(self, prefix: str) -> str:
        """The start of the names of keys that begin with `prefix`; any text will do."""
        return self.prefix + prefix

    def key(self, name: str) -> str | None:
        """The key of a name in the bucket; None if it is none."""
        if not name.startswith(self.prefix):
            return None
        key = name[len(self.prefix) :]
        return None if self._fault(key) else key

    def _fault(self, key: str) -> str | None:
        """A fault of a key, to follow "must not"; None if there is none."""
        if not isinstance(key, str) or not key:
            return "be empty"
        if "\\" in key or any(character < " " or character == "\x7f" for character in key):
            return "hold a control character or a backslash"
        try:
            length = len((self.prefix + key).encode())
        except UnicodeEncodeError:
            return "hold what UTF-8 cannot"
        parts = key.split("/")
        if any(part in ("", ".", "..") for part in parts):
            return "begin or end with a slash, nor hold an empty part, '.' or '..'"
        if parts[0].casefold() == STAGING:
            return f"use the driver's own folder {STAGING}"
        if self.own_suffix and any(part.casefold().endswith(self.own_suffix) for part in parts):
            return f"use a name of the driver's own (*{self.own_suffix})"
        if length > MAX_NAME_BYTES:
            return f"be longer than {MAX_NAME_BYTES} bytes with the tier's prefix"
        return None


def checked_prefix(prefix: str) -> str:
    """An option `prefix` as `KeySpace` has it: no slash before, one behind; `OptionError` for what is none."""
    stripped = str(prefix).strip("/")
    if not stripped:
        return ""
    try:
        KeySpace().name(stripped)
    except InvalidKeyError as error:
        raise OptionError(f"the option 'prefix' is no prefix: {error.what}", found=repr(prefix)) from error
    return stripped + "/"
