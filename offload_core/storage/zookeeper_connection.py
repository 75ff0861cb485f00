"""A connection to a ZooKeeper ensemble, by kazoo, and the options that say where it is and who asks.

Each process has one connection: kazoo's threads do not survive a fork, so a forked child has a session of its own.
kazoo's errors become ours.
"""

from __future__ import annotations

import logging
import os
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
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
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
from offload_hooks.option_text import as_choice, as_count, as_seconds, as_secret
from offload_hooks.tls_options import tls_context_if

_RECEIVED_BYTES = 1 << 20
_LOOK_S = 0.02

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.WARNING)  # below that kazoo writes down what it authenticates with

_OF_NODES = (NoNodeError, NodeExistsError, BadVersionError)

Request = Callable[[KazooClient], Any]
"""A function that makes a request of a client, and returns kazoo's asynchronous result."""


class ZooKeeperConnection:
    """A session for each process: here it is made at once, in others by the first request.

    Args:
        place: the URL, without anything secret; errors begin with it.
        hosts: as kazoo takes them, without chroot.
        digest: `user:password` of the scheme `digest`.
        sasl: kazoo's options of SASL.
        tls: None for a connection without TLS.
        timeout_s: for connecting, and for each request.
        attempts: the most requests for one answer.
    """

    def __init__(
        self,
        *,
        place: str,
        hosts: str,
        digest: str | None,
        sasl: dict[str, str] | None,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        attempts: int,
    ) -> None:
        self.place = place
        self.has_login = digest is not None or sasl is not None
        self.attempts = attempts
        self._hosts = hosts
        self._digest = digest
        self._sasl = sasl
        self._tls = tls
        self._timeout_s = timeout_s
        self._sessions: dict[int, _Session] = {}
        self._session().client(self._connect)

    def client(self) -> KazooClient:
        """The client of this process, connected by the first call; errors as `ask`."""
        return self._session().client(self._connect)

    def ask(self, request: Request, path: str) -> Any | None:
        """The answer to a request that only reads; None if there is no such node. Passing errors are retried.

        Raises:
            AccessDeniedError, StoreUnavailableError, StoreTimeoutError, StoreError: with the path.
        """
        for attempt in stamina.retry_context(
            on=_may_help, attempts=self.attempts, timeout=None, wait_max=2.0, wait_jitter=0.2
        ):
            with attempt:
                try:
                    return self.ask_once(request, path)
                except NoNodeError:
                    return None
        raise AssertionError("stamina's loop ends by an answer or an error")

    def read(self, node: str) -> tuple[bytes | None, Any] | None:
        """The data of a node and its `ZnodeStat`, as new as any server has them; None if it is not there.

        Errors as `ask`.
        """

        def request(client: KazooClient) -> Any:
            client.sync_async(node)  # else a server that lags may answer with an old state
            return client.get_async(node)

        return self.ask(request, node)

    def children(self, node: str) -> list[str]:
        """The names directly below a node, in any order; none if it is not there. Errors as `ask`."""

        def request(client: KazooClient) -> Any:
            client.sync_async(node)
            return client.get_children_async(node)

        return list(self.ask(request, node) or ())

    def ask_once(self, request: Request, path: str) -> Any:
        """The answer to a request that is made once; errors as `ask`, and kazoo's of a node's existence and version."""
        key = f"{self.place}{path}"
        try:
            return request(self.client()).get(timeout=self._timeout_s)
        except _OF_NODES:
            raise
        except NoAuthError as error:
            raise AccessDeniedError(
                "ZooKeeper refuses a request", key=key, hint="The options 'digest' and 'sasl_…' say who asks."
            ) from error
        except AuthFailedError:
            raise self._refused() from None
        except ConnectionClosedError as error:
            # kazoo itself closes a connection only when its login is refused
            if self._sasl is not None and not self._session().is_closed:
                raise self._refused() from None
            raise _lost(key, error) from error
        except KazooTimeoutError as error:
            raise StoreTimeoutError(
                f"ZooKeeper does not answer within {self._timeout_s:g} s", key=key
            ) from error
        except (ConnectionLoss, SessionExpiredError) as error:
            raise _lost(key, error) from error
        except KazooException as error:
            raise StoreError(
                "ZooKeeper does not do what it is asked", key=key, found=type(error).__name__
            ) from error

    def is_back(self) -> bool:
        """Wait for a lost connection to come back, within the time limit; return whether it did."""
        client, deadline = self.client(), time.monotonic() + self._timeout_s
        while not client.connected and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return bool(client.connected)

    def close(self) -> None:
        """End this process's session."""
        self._session().close()

    def _session(self) -> _Session:
        return self._sessions.setdefault(os.getpid(), _Session())

    def _connect(self) -> KazooClient:
        handler = Handler(self._tls)
        client = KazooClient(
            hosts=self._hosts,
            handler=handler,
            timeout=self._timeout_s,
            auth_data=None if self._digest is None else [("digest", self._digest)],
            sasl_options=self._sasl,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 2.0},
            logger=_kazoo_log,
        )
        live = client.start_async()
        deadline = time.monotonic() + self._timeout_s
        while not live.wait(_LOOK_S) and not handler.ended.is_set() and time.monotonic() < deadline:
            pass
        if live.is_set():
            return client
        ended, failure = handler.ended.is_set(), handler.failure
        client.stop()
        client.close()
        if failure is not None:
            raise StoreError(
                "what answers does not speak ZooKeeper's protocol, or not this way",
                key=self.place,
                found=type(failure).__name__,
            )
        if ended and self._sasl is not None:
            raise self._refused()
        raise StoreTimeoutError(
            f"ZooKeeper does not answer within {self._timeout_s:g} s",
            key=self.place,
            found=handler.not_connected,
        )

    def _refused(self) -> AccessDeniedError:
        return AccessDeniedError("ZooKeeper refuses the SASL login", key=self.place)


class _Session:
    """The client of one process; after a fork, its parent's client and locks are not touched."""

    def __init__(self) -> None:
        self.is_closed = False
        self._client: KazooClient | None = None
        self._lock = threading.Lock()

    def client(self, connect: Callable[[], KazooClient]) -> KazooClient:
        """The client, which is connected if there is none."""
        with self._lock:
            if self._client is None:
                self._client = connect()
            return self._client

    def close(self) -> None:
        """End the session, if there is one."""
        self.is_closed = True
        if self._client is not None:
            self._client.stop()
            self._client.close()


def _lost(key: str, error: Exception) -> StoreUnavailableError:
    return StoreUnavailableError("the connection to ZooKeeper is lost", key=key, found=type(error).__name__)


def _may_help(error: Exception) -> bool:
    return isinstance(error, OffloadError) and error.retryable


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads; reports the end of the connection's thread, and bounds the memory of reads.

    Attributes:
        ended: set when it will not connect any more.
        failure: the error that ended it, None if there was none.
        not_connected: the reason why the last connection failed; None if it did not.
    """

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.ended = threading.Event()
        self.failure: Exception | None = None
        self.not_connected: str | None = None

    def spawn(self, func: Callable[..., object], *args: object, **kwargs: object) -> Any:
        """Start a thread of kazoo's; an exception is stored, not printed."""

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
        """Connect with bounded reads: kazoo would allocate as many bytes as the server announces."""
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
    """A socket that receives a limited number of bytes at a time."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def recv(self, size: int) -> bytes:
        received: bytes = self._socket.recv(min(size, _RECEIVED_BYTES))
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


_FORM = "zk://host:2181, or zk://host-1:2181,host-2:2181/chroot"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?")
_MECHANISMS = ("DIGEST-MD5", "GSSAPI")


def connect_zookeeper(
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
) -> tuple[ZooKeeperConnection, str]:
    """A connection by options as they arrive, and the chroot: empty, or a path. For the options see `ZooKeeperStore`.

    Raises:
        OptionError, MissingExtraError: options that make no sense, or need a library that is missing.
        StoreError: see `ZooKeeperConnection.ask`.
    """
    hosts, slash, chroot = parse_hosts(url).partition("/")
    context = tls_context_if(tls, ca_bundle, client_certificate, client_key)
    secret = as_secret("digest", digest, digest_file)
    if secret is not None and ":" not in secret:
        raise OptionError("the option 'digest' has another form", expected="user:password")
    connection = ZooKeeperConnection(
        place=f"zk://{hosts}",
        hosts=hosts,
        digest=secret,
        sasl=sasl_options(
            mechanism=sasl_mechanism,
            username=sasl_username,
            password=as_secret("sasl_password", sasl_password, sasl_password_file),
            service=sasl_service,
            principal=sasl_principal,
        ),
        tls=context,
        timeout_s=as_seconds("timeout_s", timeout_s),
        attempts=as_count("attempts", attempts),
    )
    return connection, f"{slash}{chroot}"


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


def sasl_options(*, mechanism: str | None, **given: str | None) -> dict[str, str] | None:
    """The options of SASL that are given, `mechanism` among them; None without SASL.

    Raises:
        OptionError: some make no sense, or one is missing.
        MissingExtraError: `puresasl` is not installed.
    """
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
