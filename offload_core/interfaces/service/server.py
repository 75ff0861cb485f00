"""`offload serve` and `own`: bind, open what the configuration names, and answer requests until a signal to stop.

It binds to loopback. Elsewhere it refuses to without tokens.

Connections are limited: how many there are, and how long one may take to make a request. Uvicorn's h11 protocol limits
the bytes of a request's head. It neither limits connections nor the time until a request has come, and it does not see
a connection before its TLS handshake is over. So the service accepts connections itself: each has a time from when it
was accepted, or its last answer, until its next request has come whole. Where there are as many as there may be, one
that waits gives way: the oldest of the address that has the most of them. One whose request is being answered stays. So
a client that comes with a request is served, however many are silent.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import structlog
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.protocols.http.h11_impl import H11Protocol

from offload_core.interfaces.service.app import make_app
from offload_core.interfaces.service.live_upkeep import live_upkeep
from offload_core.interfaces.service.offloader_metrics import OffloaderMetrics
from offload_core.interfaces.service.request_guards import MAX_HEAD_BYTES, is_loopback
from offload_core.interfaces.service.served_topics import open_topics
from offload_core.interfaces.service.tokens import Tokens, has_tokens
from offload_core.metadata.catalogue import TopicName
from offload_core.writing.configuration import Configuration, ServiceSettings
from offload_core.writing.policy_store import open_policies
from offload_hooks.errors import OptionError
from offload_hooks.shown_urls import masked

KEEP_ALIVE_S = 5
BACKLOG = 2048
"""Connections that the kernel may hold before they are accepted."""

_ACCEPT_AGAIN_S = 0.05
_TLS_GOODBYE_S = 2.0
_MOST_BY_DEFAULT = 1000


def most_connections(wanted: int | None) -> int:
    """The most connections: at most half of the process's descriptors, which offloads need as well."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_BY_DEFAULT if wanted is None else wanted
    return most if descriptors == resource.RLIM_INFINITY else max(1, min(most, descriptors // 2))


class ClientConnections:
    """The connections that are open, and which of them wait for a request. For one event loop.

    Args:
        most: how many there may be.
        request_s: how long a request may take to come, and its client not to take more of the answer, in all.
    """

    def __init__(self, most: int, request_s: float) -> None:
        self.request_s = request_s
        self._most = most
        self._open: set[BoundedProtocol] = set()
        self._waiting: defaultdict[str, dict[BoundedProtocol, None]] = defaultdict(dict)

    def enter(self, connection: BoundedProtocol) -> None:
        """A connection was accepted; another one may have to go for it."""
        self._open.add(connection)
        self.set_waiting(connection, True)
        if len(self._open) > self._most:
            self.make_room()

    def leave(self, connection: BoundedProtocol) -> None:
        """A connection is closed; idempotent."""
        self._open.discard(connection)
        self.set_waiting(connection, False)

    def set_waiting(self, connection: BoundedProtocol, waits: bool) -> None:
        """Note that a connection waits for a request, or not; who begins to is the last to give way."""
        if waits:
            self._waiting[connection.peer][connection] = None
        elif connection.peer in self._waiting:
            self._waiting[connection.peer].pop(connection, None)
            if not self._waiting[connection.peer]:
                del self._waiting[connection.peer]

    def make_room(self) -> None:
        """Close the connection that waits longest, of the address that has the most of them."""
        if self._waiting:
            of_address = max(self._waiting.values(), key=len)
            connection = next(iter(of_address))
            self.leave(connection)
            connection.abort()


class BoundedProtocol(H11Protocol):
    """A connection: uvicorn's, with a time for each request; made when it is accepted."""

    connections_within: ClientConnections
    peer: str
    opening: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _left_s: float
    """Of the time to take an answer, in which nothing more could be sent."""

    def accepted(self, within: ClientConnections, peer: str) -> None:
        """The time for the first request begins, and that for the TLS handshake with it."""
        self.connections_within, self.peer = within, peer
        self._left_s = within.request_s
        within.enter(self)
        self._start_timer()

    def abort(self) -> None:
        """Close the connection at once, whatever is still to be sent."""
        self._stop_timer()
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def ended(self) -> None:
        """The connection is closed."""
        self._stop_timer()
        self.connections_within.leave(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self.ended()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """See uvicorn: requests, or parts of them, have come."""
        super().handle_events()
        if self._is_answering:
            self.connections_within.set_waiting(self, False)
            if not self.flow.write_paused:
                self._stop_timer()

    def on_response_complete(self) -> None:
        """See uvicorn: the time for the next request begins, or for the client to take what is left."""
        self._stop_timer()
        self._left_s = self.connections_within.request_s
        self._start_timer()
        self.connections_within.set_waiting(self, True)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """See asyncio: the client takes no more of an answer for now."""
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        """See asyncio."""
        super().resume_writing()
        if self._is_answering:
            if self._timer is not None:
                self._left_s = max(0.0, self._timer.when() - self.loop.time())
            self._stop_timer()

    @property
    def _is_answering(self) -> bool:
        """True if a request has come whole, and its answer has not gone whole."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self._left_s, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class BoundedServer(uvicorn.Server):
    """Uvicorn's server, whose connections are accepted here.

    Args:
        announce: called when it accepts connections, and ends by a signal.
    """

    def __init__(
        self, config: uvicorn.Config, connections: ClientConnections, announce: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn: accept connections of these sockets."""
        await self.lifespan.startup()
        self.servers = [_Listener(self, self._connections, each) for each in sockets or []]  # type: ignore[misc]
        self.started = True
        self._announce()


class _Listener:
    """Accepts connections until it is closed; to uvicorn it is one of asyncio's servers."""

    def __init__(
        self, server: BoundedServer, connections: ClientConnections, listening: socket.socket
    ) -> None:
        self._server, self._connections = server, connections
        listening.setblocking(False)
        self._opening: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))

    def close(self) -> None:
        for task in (self._accepting, *self._opening):
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # no descriptor is left, most likely
                    self._connections.make_room()
                    await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            protocol = BoundedProtocol(
                self._server.config, self._server.server_state, self._server.lifespan.state, loop
            )
            task = protocol.opening = loop.create_task(self._open(protocol, accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            protocol.accepted(self._connections, _peer(address))
            await asyncio.sleep(
                0
            )  # sock_accept does not let others have a turn while there is a connection to accept

    async def _open(self, protocol: BoundedProtocol, accepted: socket.socket) -> None:
        """Begin to read, after the handshake with TLS."""
        tls = self._server.config.ssl
        times: dict[str, float] = {}
        if tls is not None:
            times = {
                "ssl_handshake_timeout": self._connections.request_s,
                "ssl_shutdown_timeout": _TLS_GOODBYE_S,
            }
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=tls, **times
            )
        except OSError:
            protocol.ended()
        except asyncio.CancelledError:
            protocol.ended()
            raise
        finally:
            if protocol.transport is None:
                accepted.close()


def _peer(address: Any) -> str:
    """The address that a connection is counted by; of IPv6 the first half, as each network has a whole one."""
    host = ipaddress.ip_address(str(address[0]).partition("%")[0])
    return str(host) if host.version == 4 else host.exploded[:19]


_GRACE_S = 10
_ENDS = (signal.SIGINT, signal.SIGTERM)

log = structlog.get_logger("offload.admin")


def serve(configuration: Configuration, take: Collection[TopicName] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C, and end the process by it; requests that are under way are answered.

    Offloads that are under way are stopped, and what they wrote is deleted, if that is done in time
    (`service.stop_timeout_s`); else the next offload of the topic begins them anew. A second signal ends the process
    at once.

    Args:
        take: topics that are owned, see `open_topics`; None owns none.

    Raises:
        UnknownTopicError: a topic to take that there is not.
        OptionError: an address that is not to be had, keys or certificates that are none, no metadata store. Others:
            those of the metadata store.
    """
    service = configuration.service
    tokens = Tokens(service.tokens) if has_tokens(service.tokens) else None
    if tokens is None and not is_loopback(service.host):
        raise OptionError(
            "without tokens this service binds to loopback only",
            expected="service.tokens, or a host such as 127.0.0.1",
            found=service.host,
        )
    if service.tls_key is not None and service.tls_certificate is None:
        raise OptionError("a key without its certificate", expected="service.tls_certificate")
    _check_certificate(service)
    _log_as_json()
    registry = CollectorRegistry()
    stats = OffloaderMetrics(registry)
    with (
        open_policies(configuration) as (store, policies),
        _bound(service) as listening,
        open_topics(configuration, store, policies, registry, stats=stats, take=take) as topics,
        live_upkeep(configuration, stats),
    ):
        config = uvicorn.Config(
            make_app(store, policies, topics, tokens=tokens, registry=registry, service=service),
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            loop="asyncio",
            http=BoundedProtocol,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_keep_alive=KEEP_ALIVE_S,
            ws="none",
            lifespan="off",
            ssl_certfile=service.tls_certificate,
            ssl_keyfile=service.tls_key,
            timeout_graceful_shutdown=_GRACE_S,
        )
        host, port = listening.getsockname()[:2]
        scheme = "http" if service.tls_certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host
        most = most_connections(service.max_connections)
        facts = {"url": f"{scheme}://{shown}:{port}", "tokens": tokens is not None, "max_connections": most}
        connections = ClientConnections(most, service.request_timeout_s)
        ending = _Ending(BoundedServer(config, connections, partial(log.info, "listening", **facts)))
        ending.server.run(sockets=[listening])
        ending.begin(service.stop_timeout_s)
    ending.end()


class _Ending:
    """The end of the process, by the signal that it got, when all is closed or time is over."""

    def __init__(self, server: uvicorn.Server) -> None:
        self.server = server
        self._signal = signal.SIGINT
        for each in _ENDS:
            signal.signal(each, self._note)

    def _note(self, number: int, _: object) -> None:
        """Note a signal. The server has its own handlers while it runs, and raises the signals again afterwards."""
        self._signal = signal.Signals(number)
        self.server.should_exit = True

    def begin(self, within_s: float) -> None:
        """From now on a signal ends the process at once, and so does time."""
        for each in _ENDS:
            signal.signal(each, signal.SIG_DFL)
        timer = threading.Timer(within_s, self.end)
        timer.daemon = True
        timer.start()
        log.info("ending", signal=self._signal.name)

    def end(self) -> None:
        """End the process: by the signal, which has no effect on the first process of a container."""
        os.kill(os.getpid(), self._signal)
        os._exit(128 + self._signal)


def _check_certificate(service: ServiceSettings) -> None:
    if service.tls_certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(service.tls_certificate, service.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise OptionError("the certificate or its key cannot be used", found=error) from None


def _bound(service: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    try:
        return socket.create_server((service.host, service.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OptionError(
            "the service cannot listen there", found=f"{service.host}:{service.port}: {error.strerror}"
        ) from None


def _log_as_json() -> None:
    """All logs of this process as JSON, a line each, on standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _masked,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(True)


def _masked(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A line of the log without credentials of URLs, which other libraries' errors may quote."""
    return {name: masked(value) if isinstance(value, str) else value for name, value in event.items()}
