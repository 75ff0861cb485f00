"""A Pulsar's ZooKeeper as a metadata store, by kazoo. It only reads.

Source: docs/metadata-stores.md.
"""

from __future__ import annotations

import logging
import re
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import stamina
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from offload_hooks.errors import (
    AccessDeniedError,
    MissingExtraError,
    OffloadError,
    OptionError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from offload_hooks.option_text import as_choice, as_count, as_flag, as_seconds, as_secret
from offload_hooks.tls_options import tls_context

_FORM = "zk://host:2181, or zk://host-1:2181,host-2:2181/chroot"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")
_RECEIVED_BYTES = 1 << 20

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.WARNING)  # below that kazoo writes down what it authenticates with


class ZooKeeperStore:
    """The metadata store `zk:`: a ZooKeeper ensemble, of which nothing is ever changed.

    Args:
        url: `zk://host:2181,…/chroot`, as Pulsar's `metadataStoreUrl` has it, which may leave out the slashes.
        digest: `user:password` of ZooKeeper's scheme `digest`.
        digest_file: the file that holds it, instead.
        sasl_mechanism: `DIGEST-MD5` or `GSSAPI` (Kerberos).
        sasl_username, sasl_password: of DIGEST-MD5.
        sasl_password_file: the file that holds the password, instead.
        sasl_service, sasl_principal: of GSSAPI.
        tls: whether to speak TLS; the server's name is verified as well.
        ca_bundle: the certificates that the servers are verified by, instead of the machine's.
        client_certificate, client_key: files of a certificate that the servers are shown, and of its key.
        timeout_s: how long it may take to be connected, and each request.
        attempts: the most requests for one answer.
    """

    def __init__(
        self,
        url: str,
        *,
        digest: str | None = None,
        digest_file: str | None = None,
        sasl_mechanism: str | None = None,
        sasl_username: str | None = None,
        sasl_password: str | None = None,
        sasl_password_file: str | None = None,
        sasl_service: str | None = None,
        sasl_principal: str | None = None,
        tls: object = False,
        ca_bundle: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        timeout_s: object = 10,
        attempts: object = 3,
    ) -> None:
        hosts = parse_hosts(url)
        speaks_tls = as_flag("tls", tls)
        if not speaks_tls and (ca_bundle or client_certificate or client_key):
            raise OptionError("certificates are of no use without TLS", hint="Set the option 'tls' to true.")
        secret = as_secret("digest", digest, digest_file)
        if secret is not None and ":" not in secret:
            raise OptionError("the option 'digest' has another form", expected="user:password")
        sasl = _sasl_options(
            mechanism=sasl_mechanism,
            username=sasl_username,
            password=as_secret("sasl_password", sasl_password, sasl_password_file),
            service=sasl_service,
            principal=sasl_principal,
        )
        self._place = f"zk://{hosts}"
        self._timeout_s = as_seconds("timeout_s", timeout_s)
        self._attempts = as_count("attempts", attempts)
        self._handler = _Handler(
            tls_context(ca_bundle, client_certificate, client_key) if speaks_tls else None
        )
        self._has_login = sasl is not None
        self._client = KazooClient(
            hosts=hosts,
            handler=self._handler,
            timeout=self._timeout_s,
            auth_data=None if secret is None else [("digest", secret)],
            sasl_options=sasl,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 2.0},
            logger=_kazoo_log,
        )
        self._connect()

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `offload_hooks.metadata_stores.MetadataStore`."""
        found = self._ask(self._client.get_async, path)
        if found is None:
            return None
        value, stat = found
        return value or b"", stat.version

    def children(self, path: str) -> list[str]:
        """See `offload_hooks.metadata_stores.MetadataStore`."""
        return list(self._ask(self._client.get_children_async, path) or ())

    def close(self) -> None:
        """See `offload_hooks.metadata_stores.MetadataStore`."""
        self._client.stop()
        self._client.close()

    def _connect(self) -> None:
        live = self._client.start_async()
        deadline = time.monotonic() + self._timeout_s
        while not live.wait(0.02) and not self._handler.ended.is_set() and time.monotonic() < deadline:
            pass
        if live.is_set():
            return
        ended, failure = self._handler.ended.is_set(), self._handler.failure
        self.close()
        if failure is not None:
            raise StoreError(
                "what answers does not speak ZooKeeper's protocol, or not this way",
                key=self._place,
                found=type(failure).__name__,
            )
        if ended and self._has_login:
            raise self._refused()
        raise StoreTimeoutError(
            f"ZooKeeper does not answer within {self._timeout_s:g} s",
            key=self._place,
            found=self._handler.not_connected,
        )

    def _refused(self) -> AccessDeniedError:
        return AccessDeniedError("ZooKeeper refuses the SASL login", key=self._place)

    def _ask(self, request: Callable[[str], Any], path: str) -> Any | None:
        for attempt in stamina.retry_context(
            on=_may_help, attempts=self._attempts, timeout=None, wait_max=2.0, wait_jitter=0.2
        ):
            with attempt:
                return self._asked_once(request, path)
        raise AssertionError("stamina's loop ends by an answer or an error")

    def _asked_once(self, request: Callable[[str], Any], path: str) -> Any | None:
        key = f"{self._place}{path}"
        try:
            return request(path).get(timeout=self._timeout_s)
        except NoNodeError:
            return None
        except NoAuthError as error:
            raise AccessDeniedError(
                "ZooKeeper refuses a request", key=key, hint="The options 'digest' and 'sasl_…' say who asks."
            ) from error
        except AuthFailedError:
            raise self._refused() from None
        except KazooTimeoutError as error:
            raise StoreTimeoutError(
                f"ZooKeeper does not answer within {self._timeout_s:g} s", key=key
            ) from error
        except (ConnectionLoss, ConnectionClosedError, SessionExpiredError) as error:
            raise StoreUnavailableError(
                "the connection to ZooKeeper is lost", key=key, found=type(error).__name__
            ) from error
        except KazooException as error:
            raise StoreError(
                "ZooKeeper does not do what it is asked", key=key, found=type(error).__name__
            ) from error


def parse_hosts(url: str) -> str:
    """`host:port,…/chroot` of a URL, as kazoo takes it.

    Raises:
        OptionError: another form. A user or password in it is never shown.
    """
    hosts = url.partition(":")[2].removeprefix("//").rstrip("/")
    names, slash, chroot = hosts.partition("/")
    if "@" in names:
        raise OptionError(
            "the URL of a ZooKeeper must not hold a user or password", hint="Give the option 'digest_file'."
        )
    if not all(_HOST.fullmatch(name) for name in names.split(",")):
        raise OptionError("this is no URL of a ZooKeeper", expected=_FORM)
    if slash and any(part in ("", ".", "..") or not part.isprintable() for part in chroot.split("/")):
        raise OptionError("the chroot of a ZooKeeper is no path", expected=_FORM)
    return hosts


def _sasl_options(*, mechanism: str | None, **given: str | None) -> dict[str, str] | None:
    options = {name: value for name, value in given.items() if value is not None}
    if mechanism is None:
        if options:
            raise OptionError("options of SASL are of no use without 'sasl_mechanism'")
        return None
    options["mechanism"] = as_choice("sasl_mechanism", mechanism, _MECHANISMS)
    if mechanism == "DIGEST-MD5" and not options.keys() >= {"username", "password"}:
        raise OptionError("the SASL mechanism DIGEST-MD5 needs 'sasl_username' and 'sasl_password'")
    try:
        import puresasl  # noqa: F401 - of kazoo[sasl], and needed for nothing else
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "SASL needs the module 'puresasl', which is not installed",
            hint="Install it: pip install 'kazoo[sasl]'",
        ) from error
    return options


def _may_help(error: Exception) -> bool:
    return isinstance(error, OffloadError) and error.retryable


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with the end of the one that holds the connection, and reads that allocate what is there.

    Attributes:
        ended: set when it is not going to connect any more.
        failure: what ended it, None if it ended in good order.
        not_connected: why the last connection did not come about, in words; None if it did.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self.not_connected: str | None = None

    def spawn(self, func: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """A thread of kazoo's; an exception is kept, instead of printed."""

        def run() -> None:
            try:
                func(*args, **kwargs)
            except Exception as error:
                self.failure = error
            finally:
                self.ended.set()

        return super().spawn(run)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: object
    ) -> Any:
        """A connection; kazoo would have it allocate as many bytes as the server announces."""
        self.not_connected = None
        try:
            connection = super().create_connection(address, timeout=timeout)
            if self._tls is not None:
                # closes the connection if it fails, as kazoo does not
                connection = self._tls.wrap_socket(connection, server_hostname=hostname)
            return _Bounded(connection)
        except OSError as error:
            self.not_connected = getattr(error, "verify_message", None) or type(error).__name__
            raise


class _Bounded:
    """A socket that receives so many bytes at a time at most."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def recv(self, size: int) -> bytes:
        received: bytes = self._socket.recv(min(size, _RECEIVED_BYTES))
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)
