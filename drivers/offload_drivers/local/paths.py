"""Keys of a local tier to paths under its root, and back: no key leaves the root.

A key is a relative path with `/` between its parts. Refused with `InvalidKeyError`: an absolute one, a part
that is empty, `.` or `..`, NUL, a backslash, text that UTF-8 cannot hold, a part that is too long for a
file's name, and the driver's own names (`.offload-uploads` at the root, whatever ends with `.metadata.json`). Of what
cannot be a key nothing is listed, either. Symbolic links are `files`' business.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from urllib.parse import unquote_to_bytes

from offload_drivers.sidecar import SUFFIX
from offload_hooks.errors import InvalidKeyError, OptionError
from offload_hooks.shown_urls import holds_user

STAGING = ".offload-uploads"
_MODE = re.compile(r"0?6[0246]{2}")
MAX_DIRECTORY_BYTES = 255
MAX_NAME_BYTES = MAX_DIRECTORY_BYTES - len(SUFFIX)
"""So that the object's sidecar has a name, too."""


def root_from_url(url: str) -> str:
    """The path of a `file:` URL: `file:///a%20b` is `/a b`; `file:a` is `a` in the working directory."""
    scheme, _, rest = url.partition(":")
    authority, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", "")
    path = f"/{path}" if rest.startswith("//") else rest
    if scheme.lower() != "file" or authority not in ("", "localhost") or holds_user(url):
        raise OptionError("not a file URL of this machine", expected="file:///path")
    if "?" in url or "#" in url:
        raise OptionError("a file URL has no query and no fragment", hint="Write ? as %3F and # as %23.")
    path = os.fsdecode(unquote_to_bytes(path))
    if not path or rest in ("//", "//localhost"):
        raise OptionError("a file URL without a path", expected="file:///path")
    return os.path.abspath(path)


def checked_root(root: str | os.PathLike[str]) -> str:
    """An absolute, normal path; a relative one is refused: another process may open the tier anew."""
    path = os.fspath(root)
    if not isinstance(path, str) or not path or "\0" in path:
        raise OptionError("the option 'root' is not the path of a directory", found=repr(path))
    if not path.startswith("/"):
        raise OptionError(
            "the option 'root' is a relative path",
            found=repr(path),
            hint="Give an absolute one, or open the store by its path: ./x.",
        )
    return os.path.normpath(path)


def checked_mode(mode: object) -> int:
    """The permissions that a text such as `0640` says; the owner must be able to read and write."""
    if not isinstance(mode, str) or not _MODE.fullmatch(mode):
        raise OptionError(
            "the option 'mode' is not what files may have",
            expected='a text such as "0600" or "0640", in octal, the owner reading and writing',
            found=repr(mode),
        )
    return int(mode, 8)


def root_url(root: str) -> str:
    """The `file:` URL of a root."""
    return PurePosixPath(root).as_uri()


def check_key(key: str) -> None:
    """Refuse what is no key (`InvalidKeyError`)."""
    fault = _fault(key)
    if fault:
        shown = str(key).encode("utf-8", "backslashreplace").decode()
        raise InvalidKeyError(f"a key of a local tier must not {fault}", key=shown)


def is_key(text: str, *, is_directory: bool = False) -> bool:
    """True if `check_key` accepts it, or keys that begin with this directory."""
    return _fault(f"{text}/-" if is_directory else text) is None


def is_own_name(name: str, at_root: bool) -> bool:
    """True if a file or directory of this name is the driver's; not every file system keeps the case."""
    folded = name.casefold()
    return folded.endswith(SUFFIX) or (at_root and folded == STAGING)


def split_key(key: str) -> tuple[str, str]:
    """The directory of a key's object below the root, and its name there; `InvalidKeyError` for what is no key."""
    check_key(key)
    directory, _, name = key.rpartition("/")
    return directory, name


def _fault(key: str) -> str | None:
    """A fault of a key, to follow "must not"; None if there is none."""
    if not isinstance(key, str) or not key:
        return "be empty"
    if "\0" in key or "\\" in key:
        return "hold NUL or a backslash"
    try:
        key.encode()
    except UnicodeEncodeError:
        return "hold what UTF-8 cannot"
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "begin or end with a slash, nor hold an empty part, '.' or '..'"
    if any(is_own_name(part, at_root=not i) for i, part in enumerate(parts)):
        return f"use a name of the driver's own ({STAGING}, *{SUFFIX})"
    if any(len(part.encode()) > MAX_DIRECTORY_BYTES for part in parts[:-1]):
        return f"have a part of more than {MAX_DIRECTORY_BYTES} bytes"
    if len(parts[-1].encode()) > MAX_NAME_BYTES:
        return f"end with a part of more than {MAX_NAME_BYTES} bytes"
    return None
