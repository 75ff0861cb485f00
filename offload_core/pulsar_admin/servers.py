"""Which servers an admin REST has, and what they are shown: URL and options → values.

A URL may name several brokers, as Pulsar's own service URLs do: `http://a:8080,b:8080`. Only servers that are named
ever get a request, so only they get credentials.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_secret

_FORM = "http://broker:8080, https://broker:8443, or http://broker-1:8080,broker-2:8080"
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str | None:
    """`scheme://host:port` of an http URL, in lower case and always with the port; None for another URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if scheme not in _PORTS or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{host}:{_PORTS[scheme] if port is None else port}"


def parse_servers(url: str) -> tuple[str, ...]:
    """The origins of the servers that a URL names, in its order.

    Raises:
        OptionError: another form, or more than scheme, hosts and ports. A user or password in it is never shown.
    """
    scheme, separator, hosts = url.partition("://")
    names = hosts.rstrip("/").split(",")
    if not separator or scheme.lower() not in _PORTS:
        raise OptionError("this is no URL of a broker's admin REST", expected=_FORM)
    if "@" in hosts:
        raise OptionError(
            "the URL of an admin REST must not hold a user or password", hint="Give the option 'token_file'."
        )
    if any(not name.strip() or re.search(r"[/?#\\\s]", name.strip()) for name in names):
        raise OptionError("the URL of an admin REST has nothing behind host and port", expected=_FORM)
    origins = [origin_of(f"{scheme}://{name.strip()}") for name in names]
    known = tuple(dict.fromkeys(origin for origin in origins if origin is not None))
    if None in origins:
        raise OptionError("this is no URL of a broker's admin REST", expected=_FORM)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a server is shown, and which certificates it is believed by. Nothing of it is in a repr.

    Attributes:
        token: a token (JWT), None for none.
        tls: how servers are verified and what certificate they are shown; None without TLS.
    """

    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


def read_token(token: str | None, token_file: str | None) -> str | None:
    """The token of two options, of which at most one is given.

    Raises:
        OptionError: both, a file that cannot be read, or what is no token, which is not shown.
    """
    given = as_secret("token", token, token_file)
    if given is not None and not _TOKEN.fullmatch(given):
        raise OptionError("the option 'token' is too long, or holds what no token can")
    return given
