"""A connection to a ZooKeeper ensemble, by kazoo, and the root of our own in it.

Each process has one connection: kazoo's threads do not survive a fork, so a forked child has a session of its own.
kazoo's errors become ours.

The root is marked as ours, or refused, so that nothing is written to a live Pulsar's tree. Its data identifies it, and
its version counts deletions: every writer checks both. ZooKeeper's versions of a node begin anew when it is deleted and
created again; with the count the two differ.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from offload_core.metadata.stores.record_paths import PULSARS
from offload_hooks.errors import (
    AccessDeniedError,
    BadMagicError,
    OffloadError,
    OptionError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnsupportedVersionError,
)

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


_KIND = b"pulsar-offload metadata "
MARK = _KIND + b"1"
"""The data of a root of ours."""

_TURNS = 20


class ZooKeeperRoot:
    """The root of a metadata store; `path` is a ZooKeeper's, empty for the ensemble's own root."""

    def __init__(self, connection: ZooKeeperConnection, path: str) -> None:
        self.path = path
        self._connection = connection

    @property
    def acl(self) -> list[Any]:
        """The rights of our nodes: with a login no other user may write, without one all may."""
        found: list[Any] = (
            [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if self._connection.has_login else OPEN_ACL_UNSAFE
        )
        return found

    def generation(self) -> int:
        """The number of deletions so far. A root that is missing or empty is made ours.

        Raises:
            OptionError: the ensemble's own root, or a node of Pulsar's.
            BadMagicError: it holds something else. UnsupportedVersionError: it was written by a newer program.
        """
        self._check_names()
        for _ in range(_TURNS):
            found = self._connection.ask(self._get, self.path)
            if found is None:
                self.make_parents(self.path)
                self._try(lambda client: client.create_async(self.path, MARK, self.acl))
                continue
            data, stat = found
            if data == MARK:
                generation: int = stat.version
                return generation
            if data or stat.numChildren:
                raise self._refusal(data or b"")
            self._claim(stat.version)
        raise StoreUnavailableError("the root of a metadata store is being changed by others", key=self._key)

    def make_parents(self, path: str) -> None:
        """Make the nodes above `path` that are missing, without data."""
        parts = path.split("/")[1:-1]
        for depth in range(1, len(parts) + 1):
            self._make_parent("/" + "/".join(parts[:depth]))

    def _make_parent(self, node: str) -> None:
        if self._connection.ask(lambda client: client.exists_async(node), node) is None:
            self._try(lambda client: client.create_async(node, None, self.acl))

    @property
    def _key(self) -> str:
        return f"{self._connection.place}{self.path}"

    def _get(self, client: KazooClient) -> Any:
        client.sync_async(self.path)
        return client.get_async(self.path)

    def _try(self, request: Callable[[KazooClient], Any]) -> None:
        """Make a request that another process may make at the same time; the caller inspects the result."""
        with suppress(NodeExistsError, NoNodeError, BadVersionError):
            self._connection.ask_once(request, self.path)

    def _claim(self, version: int) -> None:
        self._try(lambda client: client.set_async(self.path, MARK, version))

    def _check_names(self) -> None:
        names = self.path.split("/")[1:]
        if not names or not PULSARS.isdisjoint(names):
            raise OptionError(
                "a ZooKeeper is written only below a root of its own",
                key=self._key,
                expected="a URL such as zk://host:2181/pulsar-offload",
            )

    def _refusal(self, data: bytes) -> BadMagicError | UnsupportedVersionError:
        if data.startswith(_KIND):
            return UnsupportedVersionError(
                "the root of a metadata store has a version that is not known here",
                key=self._key,
                expected=MARK.decode(),
                found=ascii(data[:50]),
                hint="Upgrade pulsar-offload: pip install --upgrade pulsar-offload.",
            )
        names = self._connection.ask(lambda client: client.get_children_async(self.path), self.path) or []
        what = "a live Pulsar's tree is there" if not PULSARS.isdisjoint(names) else "something else is there"
        return BadMagicError(
            f"nothing is written to a ZooKeeper where {what}",
            key=self._key,
            expected="a root that is new, empty, or ours",
            found=", ".join(sorted(names)[:5]) or "data",
            hint="Name a root of its own: zk://host:2181/pulsar-offload",
        )
