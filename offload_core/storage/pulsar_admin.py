"""Requests to a broker's admin REST: something is got, or nothing, or put; or an error that names the place.

Each request has a time limit, each answer a largest size. What may help is tried again, at the next of the servers if
several are named. A request that a broker sends on, since another one owns the topic, is followed to servers that are
named and to no others: they would be shown the token.

A URL may name several brokers, as Pulsar's own service URLs do: `http://a:8080,b:8080`. Only servers that are named
ever get a request, so only they get credentials.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import stamina
import urllib3

from offload_hooks.errors import (
    AccessDeniedError,
    BadLengthError,
    FormatError,
    MetadataError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from offload_hooks.json_text import read_json
from offload_hooks.option_text import as_count, as_seconds, as_secret
from offload_hooks.tls_options import tls_context

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
    """The secrets for a server, and the certificates by which it is trusted. None of them is in a repr.

    Attributes:
        token: a token (JWT), None for none.
        tls: how servers are verified and what certificate they are shown; None without TLS.
    """

    token: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)


def read_token(token: str | None, token_file: str | None) -> str | None:
    """The token of two options, of which at most one is given.

    Raises:
        OptionError: both, a file that cannot be read, or an invalid token, which is not shown.
    """
    given = as_secret("token", token, token_file)
    if given is not None and not _TOKEN.fullmatch(given):
        raise OptionError("the option 'token' is too long, or holds what no token can")
    return given


MAX_ANSWER_BYTES = 64 << 20
"""A larger answer is refused. A topic of 100,000 ledgers has one of some 20 MB."""

_READ_BYTES = 1 << 16
_MOST_REDIRECTS = 5
_LONGEST_WAIT_S = 30.0
_NOT_NOW = frozenset((408, 429, 500, 502, 503, 504))
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_SHOWN_CHARACTERS = 200


class PulsarAdminClient:
    """The admin REST of the servers at these origins (`parse_servers`). Threads may share it.

    Args:
        timeout_s: how long a connection may take to come about, and one request to be answered.
        attempts: the most requests for one answer.
    """

    def __init__(
        self, servers: Sequence[str], credentials: Credentials, *, timeout_s: float, attempts: int
    ) -> None:
        self._servers = tuple(servers)
        self._token = credentials.token
        self._timeout_s = timeout_s
        self._attempts = max(attempts, len(self._servers))
        self._pools = urllib3.PoolManager(
            num_pools=len(self._servers),
            maxsize=32,
            retries=False,
            timeout=urllib3.Timeout(connect=timeout_s, read=timeout_s),
            ssl_context=credentials.tls,
        )

    def get_json(self, path: str, absent: Collection[int] = ()) -> Any | None:
        """Get the JSON at `path` (which begins with `/admin/`); None if the broker has no such thing.

        Args:
            absent: other statuses than 404 that say that; of one that is successful, if the answer is empty.

        Raises:
            AccessDeniedError: the token is refused, or there is none and one is needed.
            StoreUnavailableError, StoreTimeoutError: no server answers, or none can now.
            StoreError: any other answer; one that sends the request on to a server that is not named.
            MetadataError, BadLengthError: the answer is no JSON, or too large.
        """
        url, status, headers, body = self._ask("GET", path)
        is_absent = status in absent and (not body or status >= HTTPStatus.BAD_REQUEST)
        return None if is_absent else self._judged(url, status, headers, body)

    def get_bytes(self, path: str) -> bytes | None:
        """Get what is at `path`, whatever it is; None if the broker has no such thing. Errors as `get_json`."""
        url, status, headers, body = self._ask("GET", path)
        if status == HTTPStatus.OK:
            return body
        self._judged(url, status, headers, body)
        return None

    def put(self, path: str, value: Any = None) -> bool:
        """Request an action of a broker, by its path; False if that is under way already (409). Safe to repeat.

        Args:
            value: goes with it as JSON; None for nothing.

        Raises:
            ObjectNotFoundError: the broker does not have it. Others: see `get_json`.
        """
        sent = None if value is None else json.dumps(value).encode()
        url, status, headers, body = self._ask("PUT", path, sent)
        if status == HTTPStatus.CONFLICT:
            return False
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return True
        if self._judged(url, status, headers, body) is None:
            raise ObjectNotFoundError("a broker knows no such topic", key=url, found=_reason(body))
        raise AssertionError("an answer that is none of these is an error")

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _ask(
        self, method: str, path: str, sent: bytes | None = None
    ) -> tuple[str, int, urllib3.HTTPHeaderDict, bytes]:
        """The last URL that was asked, and its answer: one that is not to be waited for, or the last."""
        for attempt in stamina.retry_context(
            on=_wait, attempts=self._attempts, timeout=None, wait_max=5.0, wait_jitter=0.2
        ):
            with attempt:
                url = self._servers[(attempt.num - 1) % len(self._servers)] + path
                for _ in range(_MOST_REDIRECTS + 1):
                    status, headers, body = self._request(method, url, sent)
                    if status in _NOT_NOW:
                        self._judged(url, status, headers, body)
                    if status not in _REDIRECTS:
                        return url, status, headers, body
                    url = self._followed(url, headers.get("Location"))
                raise StoreError("a broker sends a request on and on", key=url)
        raise AssertionError("stamina's loop ends by an answer or an error")

    def _request(
        self, method: str, url: str, sent: bytes | None
    ) -> tuple[int, urllib3.HTTPHeaderDict, bytes]:
        headers = {"Accept": "application/json", "User-Agent": "pulsar-offload"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        if sent is not None:
            headers["Content-Type"] = "application/json"
        deadline = time.monotonic() + self._timeout_s
        try:
            response = self._pools.request(
                method,
                url,
                body=sent,
                headers=headers,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                body = bytearray()
                while data := response.read1(_READ_BYTES, decode_content=False):
                    body += data
                    if len(body) > MAX_ANSWER_BYTES:
                        raise BadLengthError(
                            "an answer of a broker is too large",
                            key=url,
                            expected=f"at most {MAX_ANSWER_BYTES} bytes",
                        )
                    if time.monotonic() > deadline:
                        raise StoreTimeoutError(
                            f"a broker has not answered as a whole within {self._timeout_s:g} s", key=url
                        )
            except BaseException:
                response.close()
                raise
            response.release_conn()
            return response.status, response.headers, bytes(body)
        except urllib3.exceptions.HTTPError as error:
            raise self._translated(url, error) from error

    def _translated(self, url: str, error: urllib3.exceptions.HTTPError) -> StoreError:
        if isinstance(error, urllib3.exceptions.TimeoutError) and not isinstance(
            error, urllib3.exceptions.NewConnectionError
        ):
            return StoreTimeoutError(f"a broker does not answer within {self._timeout_s:g} s", key=url)
        if isinstance(error, urllib3.exceptions.SSLError):
            return StoreError(
                "no TLS connection to a broker comes about",
                key=url,
                found=_shown(str(error)),
                hint="The option 'ca_bundle' names the certificates to believe.",
            )
        return StoreUnavailableError("a broker does not answer", key=url, found=type(error).__name__)

    def _followed(self, url: str, location: str | None) -> str:
        target = _joined(url, location or "")
        origin = origin_of(target)
        if not location or origin is None:
            raise StoreError("a broker sends a request on to no place", key=url)
        if origin not in self._servers:
            raise StoreError(
                "a broker sends a request on to a server that is not named",
                key=url,
                expected=", ".join(self._servers),
                found=_shown(origin),
                hint="If it is one of the cluster, name it as well, with a comma between them; or ask a proxy.",
            )
        path = target.split("://", 1)[1].partition("/")[2]
        return f"{origin}/{path}"

    def _judged(self, url: str, status: int, headers: urllib3.HTTPHeaderDict, body: bytes) -> Any | None:
        if status == HTTPStatus.OK:
            return parse_json(body, url)
        reason = _reason(body)
        if status == HTTPStatus.NOT_FOUND and reason is not None:
            return None
        found = f"{status}: {self._without_token(reason)}" if reason else status
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            hint = (
                "Its token does not cover this." if self._token else "The option 'token_file' names a token."
            )
            raise AccessDeniedError("a broker refuses a request", key=url, found=found, hint=hint)
        if status in _NOT_NOW:
            after = _seconds(headers.get("Retry-After"))
            raise StoreUnavailableError(
                "a broker cannot answer now", key=url, found=found, retry_after_s=after
            )
        if status == HTTPStatus.NOT_FOUND:
            raise StoreError("this is not a broker's admin REST", key=url, found=found)
        raise StoreError("a broker answers with something else", key=url, expected="200", found=found)

    def _without_token(self, text: str) -> str:
        return text.replace(self._token, "(the token)") if self._token else text


def parse_json(body: bytes, url: str) -> Any:
    """The value of an answer; `MetadataError` if it is no JSON."""
    return read_json(body, "an answer of a broker", error=MetadataError, key=url)


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        return ""


def _reason(body: bytes) -> str | None:
    """The reason in a broker's answer that is an error; None if it is not Pulsar's form of one."""
    try:
        answer = read_json(body, "an answer of a broker")
    except FormatError:
        return None
    reason = answer.get("reason") if isinstance(answer, dict) else None
    return _shown(reason) if isinstance(reason, str) else None


def _shown(text: str) -> str:
    """The beginning of a server's text, with nothing in it that could steer a terminal."""
    line = " ".join(text.split())
    cut = line[:_SHOWN_CHARACTERS] + ("…" if len(line) > _SHOWN_CHARACTERS else "")
    return "".join(c if c.isprintable() else "\ufffd" for c in cut)


def _wait(error: Exception) -> bool | float:
    """Decide on another request after an error: none, or after the seconds that the server asks for."""
    if not (isinstance(error, OffloadError) and error.retryable):
        return False
    asked: float | None = getattr(error, "retry_after_s", None)
    if asked is None:
        return True
    return asked if asked <= _LONGEST_WAIT_S else False


def _seconds(retry_after: str | None) -> float | None:
    """The header `Retry-After`, seconds or a date, as seconds from now on; None for one that makes no sense."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


class AdminPlugin:
    """A plugin that asks an admin REST; nothing is asked when it is made. Options may be text.

    Args:
        url: `http://broker:8080`; several brokers with commas between them. No other server is ever asked.
        token: a token (JWT).
        token_file: the file that holds it, instead.
        ca_bundle: the certificates that the servers are verified by, instead of the machine's.
        client_certificate, client_key: files of a certificate that the servers are shown, and of its key.
        timeout_s: how long one request may take.
        attempts: the most requests for one answer.

    Raises:
        OptionError: a URL or an option that is not right.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca_bundle: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        timeout_s: object = 30,
        attempts: object = 3,
    ) -> None:
        servers = parse_servers(url)
        is_tls = servers[0].startswith("https:")
        if not is_tls and (ca_bundle or client_certificate or client_key):
            raise OptionError("certificates are of no use without TLS", expected="a URL with https:")
        self._client = PulsarAdminClient(
            servers,
            Credentials(
                token=read_token(token, token_file),
                tls=tls_context(ca_bundle, client_certificate, client_key) if is_tls else None,
            ),
            timeout_s=as_seconds("timeout_s", timeout_s),
            attempts=as_count("attempts", attempts),
        )

    @property
    def client(self) -> PulsarAdminClient:
        """The client that it asks with."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
