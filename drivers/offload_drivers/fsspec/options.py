"""The options of the driver `fsspec`, checked and as values, and what a `fsspec+<protocol>:` URL stands for.

Options may come as text. What is refused is refused with `OptionError`, which never repeats what may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from offload_drivers.object_keys import checked_prefix
from offload_drivers.server_options import as_text, check_no_query, check_no_user
from offload_hooks.errors import OptionError
from offload_hooks.json_text import read_json
from offload_hooks.shown_urls import MASK

SCHEME = "fsspec"
_FORM = f"{SCHEME}+PROTOCOL://host/path"
_LOCAL = ("file", "local")


@dataclass(frozen=True, slots=True, kw_only=True)
class FsspecOptions:
    """Place of a tier and how its file system is made; see `FsspecDriver` for what each one means.

    Attributes:
        root: what follows `protocol://` in fsspec's own URLs, without a slash at its end.
    """

    protocol: str
    root: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        """The root as fsspec writes it."""
        return f"{self.protocol}://{self.root}"

    @property
    def location(self) -> str:
        """The URL of the tier."""
        return f"{SCHEME}+{self.protocol}://{quote(self.root, safe='/:[]')}"

    def without_secrets(self, text: str) -> str:
        """A text without anything that the storage options hold, but for what the root shows as well."""
        for value in sorted(set(_texts(self.storage_options)), key=len, reverse=True):
            if value and value not in self.root:
                text = text.replace(value, MASK)
        return text


def checked_options(*, protocol: object, root: object, storage_options: object) -> FsspecOptions:
    """The options of `FsspecDriver` as values; `OptionError` for what makes no sense."""
    name, place = as_text("protocol", protocol).lower(), as_text("root", root)
    if not name:
        raise OptionError("the option 'protocol' is empty", expected="a name that fsspec knows, such as sftp")
    if "::" in name or "::" in place or "://" in place:
        raise OptionError(
            "a tier is in one file system, not in a chain of them",
            expected=_FORM,
            hint="Name the outer one as protocol=, and give it the inner one by its storage_options.",
        )
    if "?" in place or "#" in place:
        raise OptionError(
            "the option 'root' holds a query or a fragment", hint="Give options by storage_options."
        )
    user, at, _ = place.partition("/")[0].rpartition("@")
    if at:  # of OCI a bucket has its namespace there, which is no password
        check_no_user(user, ":")
    if name in _LOCAL and not place.startswith("/"):
        raise OptionError(
            "the tier's folder is no absolute path", expected=f"{SCHEME}+{name}:///path", found=repr(place)
        )
    checked_prefix(place.partition("/")[2])
    return FsspecOptions(
        protocol=name, root=place.rstrip("/"), storage_options=_storage_options(storage_options)
    )


def options_from_url(url: str) -> dict[str, object]:
    """The options that `fsspec+sftp://host/path` stands for; %-escapes are resolved."""
    scheme, _, rest = url.partition(":")
    own, _, protocol = scheme.lower().partition("+")
    if own != SCHEME or not protocol or not rest.startswith("//"):
        raise OptionError("the URL names no file system of fsspec", expected=_FORM)
    check_no_query(url)
    check_no_user(rest)  # where it is no user's, @ is written %40
    try:
        root = unquote_to_bytes(rest[2:]).decode()
    except UnicodeDecodeError:
        raise OptionError("the URL is malformed", expected=_FORM) from None
    options = checked_options(protocol=protocol, root=root, storage_options=None)
    return {"protocol": options.protocol, "root": options.root}


def _storage_options(given: object) -> Mapping[str, Any]:
    if given is None or given == "":
        return {}
    if isinstance(given, str):
        given = read_json(given, "the option 'storage_options'", error=OptionError)
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise OptionError(
            "the option 'storage_options' is no mapping",
            expected='a dict, or a JSON object as text: {"username": "pulsar"}',
        )
    return dict(given)


def _texts(value: object) -> Iterator[str]:
    """All texts in a value, however deep, but the names in mappings."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "backslashreplace")
