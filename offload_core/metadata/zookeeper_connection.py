"""A connection to a ZooKeeper ensemble, by kazoo: made once for each process, its errors as ours.

Threads of kazoo's do not live through a fork, so a forked child has a session of its own.
"""

from __future__ import annotations

import logging
import os
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
    OffloadError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)

_RECEIVED_BYTES = 1 << 20
_LOOK_S = 0.02

_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.WARNING)  # below that kazoo writes down what it authenticates with

_OF_NODES = (NoNodeError, NodeExistsError, BadVersionError)

Request = Callable[[KazooClient], Any]
"""What makes a request of a client, and gives kazoo's asynchronous result."""


class ZooKeeperConnection:
    """A session of each process that uses it, made by the first request there, and here at once.

    Args:
        place: the URL, without anything secret; errors begin with it.
        hosts: as kazoo takes them, without chroot.
        digest: `user:password` of the scheme `digest`.
        sasl: kazoo's options of SASL.
        tls: how TLS is spoken; None for not.
        timeout_s: how long it may take to be connected, and each request.
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
        """The answer to a request that only reads; None if there is no such node. It is made again where that may help.

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
        """Whether a connection that was lost is there again, within the time limit."""
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
    """One process's client; its parent's is left alone, as are the locks that another thread held in a fork."""

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
