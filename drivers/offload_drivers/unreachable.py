"""Connections that could not be made, of the drivers whose client is aiohttp."""

from __future__ import annotations

import os
import socket

import aiohttp

from offload_hooks.errors import StoreUnreachableError


def unreachable(failed: str, error: BaseException) -> StoreUnreachableError | None:
    """Return the error for a connection that was not made, with the address and why; None for all else.

    Args:
        failed: what was attempted: "cannot read".
        error: the client's own, or one that was raised from it.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, aiohttp.ClientConnectorError):
            what = "proxy" if isinstance(cause, aiohttp.ClientProxyConnectionError) else "endpoint"
            return StoreUnreachableError(
                f"{failed}: nothing answers at {cause.host}:{cause.port}",
                found=_reason(cause.os_error),
                hint=f"Check the address of the {what}, and the network.",
            )
        cause = cause.__cause__ or cause.__context__
    return None


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return error.strerror or "the name is not known"
    return type(error).__name__ if error.errno is None else os.strerror(error.errno)
