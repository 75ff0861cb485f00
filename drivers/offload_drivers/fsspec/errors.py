"""What file systems of fsspec raise as errors of `offload_hooks.errors`: the one place where it is translated.

Each file system raises what its library does. What that means is told, in this order, by Python's own kinds of
`OSError`, by an HTTP status, and by the names of classes in libraries that may not be installed.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from offload_drivers.fsspec.options import FsspecOptions
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    placed,
)

_BY_CLASS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], type[OffloadError]], ...] = (
    ((FileNotFoundError, NotADirectoryError), ObjectNotFoundError),
    (IsADirectoryError, InvalidKeyError),
    (FileExistsError, ObjectExistsError),
    (PermissionError, AccessDeniedError),
    (TimeoutError, StoreTimeoutError),
    ((ConnectionError, EOFError, socket.gaierror), StoreUnavailableError),
)

_BY_ERRNO: dict[int, type[OffloadError]] = {
    errno.ENOSPC: StoreFullError,
    errno.EDQUOT: StoreFullError,
    errno.ENAMETOOLONG: InvalidKeyError,
    errno.EHOSTUNREACH: StoreUnavailableError,
    errno.ENETUNREACH: StoreUnavailableError,
    errno.EIO: StoreUnavailableError,
}

_BY_NAME: dict[str, type[OffloadError]] = {
    "AuthenticationException": AccessDeniedError,  # paramiko
    "BadHostKeyException": AccessDeniedError,
    "NoValidConnectionsError": StoreUnavailableError,
    "SSHException": StoreUnavailableError,
    "NoCredentialsError": AccessDeniedError,  # botocore
    "ClientAuthenticationError": AccessDeniedError,  # azure
    "ClientConnectionError": StoreUnavailableError,  # aiohttp
    "ClientPayloadError": StoreUnavailableError,
    "Timeout": StoreTimeoutError,  # requests
    "RequestException": StoreUnavailableError,
    "error_temp": StoreUnavailableError,  # ftplib
}
"""By the name of the class, or of one that it is derived from."""

_BY_MESSAGE = {"Socket is closed": StoreUnavailableError, "not found in known_hosts": AccessDeniedError}
_MOST_SHOWN = 200


@contextmanager
def translated(doing: str, options: FsspecOptions, key: str | None = None) -> Iterator[None]:
    """Raise errors of a file system as our own, without anything of the storage options.

    Args:
        doing: what is attempted, a verb and its object.
        key: the key of the object, if it is of one.
    """
    with placed(key=key):
        try:
            yield
        except OffloadError:
            raise
        except Exception as error:
            raise _translation(error, f"cannot {doing} in {options.location}", options) from error


def wrong_storage_options(error: Exception, options: FsspecOptions) -> OptionError:
    """The error for a file system that does not take its options; it shows the names in them only."""
    return OptionError(
        f"fsspec cannot make a file system {options.protocol!r} of these storage_options",
        found=_shown(error, options),
        hint=f"Given: {', '.join(sorted(options.storage_options)) or 'none'}.",
    )


def _translation(error: Exception, failed: str, options: FsspecOptions) -> OffloadError:
    if isinstance(error, NotImplementedError):
        return StoreError(f"{failed}: this file system cannot do that", found=_shown(error, options))
    return kind_of(error)(failed, found=_shown(error, options))


def kind_of(error: Exception) -> type[OffloadError]:
    """The class of our error for what a file system raised."""
    for kinds, kind in _BY_CLASS:
        if isinstance(error, kinds):
            return kind
    status = _status(error)
    if status is not None:
        return _kind_of_status(status)
    message = str(error)
    by_message = next((kind for text, kind in _BY_MESSAGE.items() if text in message), None)
    by_name = next(
        (_BY_NAME[base.__name__] for base in type(error).__mro__ if base.__name__ in _BY_NAME), None
    )
    number = error.errno if isinstance(error, OSError) else None
    return by_message or by_name or _BY_ERRNO.get(number or 0, StoreError)


def _kind_of_status(status: int) -> type[OffloadError]:
    if status in (401, 403):
        return AccessDeniedError
    if status in (404, 410):
        return ObjectNotFoundError
    return StoreUnavailableError if status in (408, 425, 429) or status >= 500 else StoreError


def _status(error: Exception) -> int | None:
    """The HTTP status that an error of an HTTP library has."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status", "status_code"):
            status = getattr(holder, name, None)
            if type(status) is int and 400 <= status < 600:
                return status
    return None


def _shown(error: Exception, options: FsspecOptions) -> str:
    """An error's class and the first line of its text."""
    line = next(iter(options.without_secrets(str(error)).strip().splitlines()), "")
    line = line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "…"
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
