"""The options of the driver `hdfs`, checked and as values, and what an `hdfs:` URL stands for.

Options may come as text. What is refused is refused with `OptionError`, which never repeats what may be a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes, urlsplit

from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_count, as_seconds
from offload_hooks.shown_urls import holds_user

ALIASES = {"fileSystemURI": "url"}
"""Pulsar's names of the options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsOptions:
    """Place of a tier, credentials and limits; see `HdfsDriver` for what each one means.

    Attributes:
        authority: `host:port` or a nameservice; empty for the configuration's default file system.
        root: the tier's directory, an absolute path without a slash at its end (`/` alone for the whole).
        replication: None for the server's default.
    """

    authority: str
    root: str
    user: str = ""
    config_dir: str = ""
    kerberos_principal: str = ""
    kerberos_keytab: str = ""
    kerberos_cache: str = ""
    replication: int | None = None
    timeout_s: float = 60.0

    @property
    def file_system(self) -> str:
        """The URL of the whole file system."""
        return f"hdfs://{self.authority}"

    @property
    def location(self) -> str:
        """The URL of the tier."""
        return self.file_system + quote(self.root)


def checked_options(**given: object) -> HdfsOptions:
    """The options of `HdfsDriver` as values; `OptionError` for what makes no sense."""
    authority, path = _split(str(given["url"]))
    text = {
        name: _text(name, given[name]) for name in given if name not in ("url", "replication", "timeout_s")
    }
    replication = given["replication"]
    options = HdfsOptions(
        authority=authority,
        root=_normal(f"{path}/{text['root']}"),
        user=text["user"],
        config_dir=text["config_dir"],
        kerberos_principal=text["kerberos_principal"],
        kerberos_keytab=text["kerberos_keytab"],
        kerberos_cache=text["kerberos_cache"],
        replication=None if replication in (None, "") else as_count("replication", replication),
        timeout_s=as_seconds("timeout_s", given["timeout_s"]),
    )
    if not options.timeout_s:
        raise OptionError("the option 'timeout_s' is 0, which no call can keep", expected="more than 0")
    if not options.kerberos_principal and (options.kerberos_keytab or options.kerberos_cache):
        raise OptionError(
            "the options 'kerberos_keytab' and 'kerberos_cache' need 'kerberos_principal'",
            hint="Give it, or leave all three out to use the ticket in KRB5CCNAME.",
        )
    return options


def options_from_url(url: str) -> dict[str, object]:
    """The options that `hdfs://host:port/path` or `hdfs://nameservice/path` stands for."""
    authority, path = _split(url)
    return {"url": f"hdfs://{authority}{quote(_normal(path))}"}


def _split(url: str) -> tuple[str, str]:
    """The authority and the path, its %-escapes resolved."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - its check is wanted
        path = unquote_to_bytes(parts.path).decode()
    except ValueError:  # its text quotes the URL
        raise OptionError("the URL is malformed", expected="hdfs://host:port/path") from None
    if parts.scheme.lower() != "hdfs":
        raise OptionError(
            "the URL is not one of HDFS", expected="hdfs://host:port/path or hdfs://nameservice/path"
        )
    if holds_user(url):
        raise OptionError(
            "the URL must not hold a user or password", hint="Give the user by the option 'user'."
        )
    if "?" in url or "#" in url:
        raise OptionError(
            "the URL must not have a query or fragment",
            hint="Give options by name; write ? as %3F and # as %23.",
        )
    return parts.netloc, path


def _normal(path: str) -> str:
    """An absolute path without empty parts."""
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") or ":" in part or not part.isprintable() for part in parts):
        raise OptionError(
            "the tier's root is no path of HDFS: a part is '.' or '..', or holds a colon or a control character",
            found=repr(path),
        )
    return "/" + "/".join(parts)


def _text(name: str, value: object) -> str:
    text = "" if value is None else str(value)
    if any(character < " " for character in text):
        raise OptionError(f"the option {name!r} holds a control character")
    return text
