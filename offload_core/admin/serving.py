"""`offload serve`: binds, opens what the configuration names, and answers until it is told to stop.

It binds to loopback. Elsewhere it refuses to without tokens.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import ssl
import sys
import threading

import structlog
import uvicorn
from prometheus_client import CollectorRegistry

from offload_core.admin.app import make_app
from offload_core.admin.connections import (
    BACKLOG,
    KEEP_ALIVE_S,
    BoundedProtocol,
    BoundedServer,
    Connections,
    most_connections,
)
from offload_core.admin.offloader_metrics import OffloaderMetrics
from offload_core.admin.offloading import open_topics
from offload_core.admin.tokens import Tokens, has_tokens
from offload_core.admin.watching import MAX_HEAD_BYTES, is_loopback
from offload_core.configuration import Configuration, ServiceSettings
from offload_core.policy_store import open_policies
from offload_hooks.errors import OptionError
from offload_hooks.shown_urls import masked

_GRACE_S = 10
_ENDS = (signal.SIGINT, signal.SIGTERM)

log = structlog.get_logger("offload.admin")


def serve(configuration: Configuration) -> None:
    """Serve until SIGTERM or Ctrl-C, and end the process by it; requests that are under way are answered.

    Offloads that are under way are stopped, and what they wrote is deleted, if that is done in time
    (`service.stop_timeout_s`); else whoever offloads the topic next begins them anew. A second signal ends the process
    at once.

    Raises:
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
        open_topics(configuration, store, policies, stats) as topics,
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
        log.info(
            "listening", url=f"{scheme}://{shown}:{port}", tokens=tokens is not None, max_connections=most
        )
        ending = _Ending(BoundedServer(config, Connections(most, service.request_timeout_s)))
        ending.server.run(sockets=[listening])
        ending.begin(service.stop_timeout_s)
    ending.end()


class _Ending:
    """How the process ends: by the signal that it was told to end by, when all is closed or time is over."""

    def __init__(self, server: uvicorn.Server) -> None:
        self.server = server
        self._told = signal.SIGINT
        for each in _ENDS:
            signal.signal(each, self._note)

    def _note(self, number: int, _: object) -> None:
        """The server has its own handlers while it runs, and raises what it was told afterwards."""
        self._told = signal.Signals(number)
        self.server.should_exit = True

    def begin(self, within_s: float) -> None:
        """From now on a signal ends the process at once, and so does time."""
        for each in _ENDS:
            signal.signal(each, signal.SIG_DFL)
        timer = threading.Timer(within_s, self.end)
        timer.daemon = True
        timer.start()
        log.info("ending", signal=self._told.name)

    def end(self) -> None:
        """End the process."""
        os.kill(os.getpid(), self._told)


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
