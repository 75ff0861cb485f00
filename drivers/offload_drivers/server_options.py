"""Options that drivers of network stores have in common, from text to values, and the URLs of tiers.

`OptionError` is raised for what makes no sense; it never repeats what may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard
from urllib.parse import SplitResult, urlsplit

from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_seconds


def as_text(name: str, value: object, *, lines: bool = False) -> str:
    """Text without white space around it; empty for None. Control characters are refused, but for text of lines."""
    text = "" if value is None else str(value).strip()
    if not lines and any(character < " " or character == "\x7f" for character in text):
        raise OptionError(f"the option {name!r} holds a control character")
    return text


def above_zero(name: str, value: object) -> float:
    """Seconds, more than 0."""
    seconds = as_seconds(name, value)
    if not seconds:
        raise OptionError(f"the option {name!r} is 0", expected="more than 0 seconds")
    return seconds


def server_url(name: str, url: str, *, with_path: bool = True, hint: str | None = None) -> str:
    """A server's URL without a slash at its end; empty if it is. `hint` is for a URL with more than it should have."""
    if not url:
        return ""
    parts = split_url(url)
    if not _is_http(parts) or "@" in parts.netloc:
        raise OptionError(
            f"the option {name!r} is no URL of a server", expected="http://host:port or https://host"
        )
    if "?" in url or "#" in url:
        raise OptionError(f"the option {name!r} must not have a query or fragment", hint=hint)
    if parts.path.strip("/") and not with_path:
        raise OptionError(f"the option {name!r} must have nothing behind host and port", hint=hint)
    return url.rstrip("/")


def check_private(url: str, what: str, proxy: str = "") -> None:
    """Refuse to send over http what whoever reads it can use, but for a server, or a proxy, of this machine."""
    parts = urlsplit(url)
    hosts = [parts.hostname or "", *([urlsplit(proxy).hostname or ""] if proxy else [])]
    if url and parts.scheme.lower() != "https" and not all(_is_loopback(host) for host in hosts):
        raise OptionError(
            f"{what} over https only, or to this machine",
            found=url,
            hint="Give an endpoint with https, or another kind of credentials.",
        )


def proxy_url(url: str) -> str:
    """A proxy's URL, perhaps with a user and password; empty if it is."""
    if url and not _is_http(split_url(url)):
        raise OptionError("the option 'proxy' is no URL of a proxy", expected="http://host:port")
    return url


def check_one_at_most(given: Sequence[str]) -> None:
    """Refuse more than one of options that exclude each other."""
    if len(given) > 1:
        raise OptionError(
            f"the options {' and '.join(repr(name) for name in given)} exclude each other", hint="Give one."
        )


def split_url(url: str) -> SplitResult | None:
    """A URL's parts, its port checked; None if it is none."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - its check is wanted
    except ValueError:
        return None
    return parts


def check_no_query(url: str) -> None:
    """Refuse a tier's URL with a query or fragment."""
    if "?" in url or "#" in url:
        raise OptionError("the URL must not have a query or fragment", hint="Give options by name instead.")


def check_no_user(text: str, marks: str = "@") -> None:
    """Refuse the part of a tier's URL that would hold a user and password, if one of the marks is in it."""
    if any(mark in text for mark in marks):
        raise OptionError(
            "the URL must not hold a user or password",
            hint="Give credentials by option, or leave them to the environment.",
        )


def check_name_in_url(noun: str, name: str, names: re.Pattern[str], *, form: str, rule: str) -> None:
    """Refuse a tier's URL whose bucket or container is missing, or has a name that the store cannot have."""
    if not name:
        raise OptionError(f"the URL names no {noun}", expected=form)
    if not names.match(name):
        raise OptionError(f"the URL's {noun} is no name of a {noun}", expected=rule, found=repr(name))


def trusted_certificates(ca_bundle: str) -> ssl.SSLContext | bool:
    """What to trust, as aiohttp takes it: the certificates in a file or directory; True for the machine's own."""
    if not ca_bundle:
        return True
    try:
        if Path(ca_bundle).is_dir():
            return ssl.create_default_context(capath=ca_bundle)
        return ssl.create_default_context(cafile=ca_bundle)
    except OSError as error:
        raise OptionError(
            "the certificates of the option 'ca_bundle' cannot be read", found=ca_bundle
        ) from error


def _is_http(parts: SplitResult | None) -> TypeGuard[SplitResult]:
    return parts is not None and parts.scheme.lower() in ("http", "https") and bool(parts.hostname)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
