"""Connections that could not be made: where nothing answers, and why."""

from __future__ import annotations

import os
import socket

from offload_hooks.errors import StoreUnreachableError

_CONNECTS_WITHIN_S = 5


def unreachable(failed: str, error: BaseException) -> StoreUnreachableError | None:
    """Return the error for a connection that aiohttp did not make, with the address and why; None for all else.

    Args:
        failed: what was attempted: "cannot read".
        error: the client's own, or one that was raised from it.
    """
    import aiohttp

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, aiohttp.ClientConnectorError):
            what = "proxy" if isinstance(cause, aiohttp.ClientProxyConnectionError) else "endpoint"
            return _nothing_at(cause.host, cause.port, failed, cause.os_error, what)
        cause = cause.__cause__ or cause.__context__
    return None


def unreachable_at(host: str, port: int, failed: str) -> StoreUnreachableError | None:
    """Return the error if no connection is made there now, of a client that does not say which one it was."""
    try:
        socket.create_connection((host, port), _CONNECTS_WITHIN_S).close()
    except OSError as error:
        return _nothing_at(host, port, failed, error, "server")
    return None


def _nothing_at(host: str, port: int | None, failed: str, error: OSError, what: str) -> StoreUnreachableError:
    return StoreUnreachableError(
        f"{failed}: nothing answers at {host}:{port}",
        found=_reason(error),
        hint=f"Check the address of the {what}, and the network.",
    )


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name is not known"
    return type(error).__name__ if error.errno is None else os.strerror(error.errno)
