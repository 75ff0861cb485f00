"""Keys of a tier in HDFS to paths under its root, and the driver's own paths.

    <root>/<key>                                      an object
    <root>/<key>.metadata.json                        its sidecar
    <root>/.offload-uploads/<id>/<id>/                an upload's folder, at home (see `uploads`)
    <root>/.offload-uploads/<hash of a key>.turn/<id>/  the same, while it is its turn (see `turns`)

Refused with `InvalidKeyError` is what `object_keys` refuses, and what HDFS does: a colon, the part `.snapshot`, a part
of more than 255 bytes, of the last one with the sidecar's suffix.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from offload_drivers.object_keys import STAGING, KeySpace
from offload_drivers.sidecar import SUFFIX
from offload_hooks.errors import InvalidKeyError

TURN_SUFFIX = ".turn"
MAX_DIRECTORY_BYTES = 255
"""The NameNode's default."""

MAX_NAME_BYTES = MAX_DIRECTORY_BYTES - len(SUFFIX)
"""So that the object's sidecar has a name, too."""

_RESERVED = (".snapshot", ".reserved")


@dataclass(frozen=True, slots=True)
class HdfsPaths:
    """The paths of one tier.

    Args:
        root: the tier's directory, absolute, without a slash at its end.
    """

    root: str

    @property
    def base(self) -> str:
        """The start of all paths in the tier: the root and a slash."""
        return self.root.rstrip("/") + "/"

    @property
    def staging(self) -> str:
        """The folder of uploads."""
        return self.base + STAGING

    def object(self, key: str) -> str:
        """An object's path; `InvalidKeyError` for what is no key."""
        path = self._keys().name(key)
        fault = _fault(key)
        if fault:
            raise InvalidKeyError(f"a key of a tier in HDFS must not {fault}", key=key)
        return path

    def sidecar(self, key: str) -> str:
        """The path of an object's sidecar."""
        return self.object(key) + SUFFIX

    def is_key(self, text: str, *, is_directory: bool = False) -> bool:
        """True if `object` accepts it, or keys that begin with this directory."""
        text = f"{text}/-" if is_directory else text
        return self._keys().key(self.base + text) is not None and not _fault(text)

    def home(self, upload_id: str) -> str:
        """The directory that an upload's folder is in, unless it is its turn."""
        return f"{self.staging}/{upload_id}"

    def turn(self, key: str) -> str:
        """The directory whose one folder may put an object of this key in place, or delete it."""
        return f"{self.staging}/{hashlib.sha256(key.encode()).hexdigest()[:32]}{TURN_SUFFIX}"

    def _keys(self) -> KeySpace:
        return KeySpace(prefix=self.base, own_suffix=SUFFIX)


def _fault(key: str) -> str | None:
    """A fault that HDFS would refuse, to follow "must not"; None if there is none."""
    parts = key.split("/")
    if ":" in key:
        return "hold a colon"
    if any(part in _RESERVED for part in parts):
        return f"have a part that is {' or '.join(_RESERVED)}"
    if any(len(part.encode()) > MAX_DIRECTORY_BYTES for part in parts[:-1]):
        return f"have a part of more than {MAX_DIRECTORY_BYTES} bytes"
    if len(parts[-1].encode()) > MAX_NAME_BYTES:
        return f"end with a part of more than {MAX_NAME_BYTES} bytes"
    return None
