"""What the HDFS client raises as errors of `offload_hooks.errors`: the one place where it is translated.

The client raises OSErrors, and RuntimeErrors whose text is the Java exception's class and message. The class tells
what happened; of the message the first line is quoted, which names paths and users, never a credential.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from offload_drivers.unreachable import unreachable_at
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    StoreUnreachableError,
)

NOT_EMPTY = "PathIsNotEmptyDirectoryException"

_JAVA = re.compile(r'\w*RPCError\("(?:\w+[.$])*(\w+)", "(.*)', re.DOTALL)
_OTHER = re.compile(r"(\w+)\((.*)\)\Z", re.DOTALL)
_END_OF_LINE = re.compile(r"\\n|\n|\\r")
_MAX_MESSAGE = 200

_KINDS: dict[str, type[OffloadError]] = {
    "AccessControlException": AccessDeniedError,
    "AuthorizationException": AccessDeniedError,
    "SaslException": AccessDeniedError,
    "InvalidToken": AccessDeniedError,
    "SnapshotAccessControlException": AccessDeniedError,
    "SASLError": AccessDeniedError,
    "GSSAPIError": AccessDeniedError,
    "NoSASLMechanism": AccessDeniedError,
    "FileNotFoundException": ObjectNotFoundError,
    "FileAlreadyExistsException": ObjectExistsError,
    "SafeModeException": StoreUnavailableError,
    "StandbyException": StoreUnavailableError,
    "ObserverRetryOnActiveException": StoreUnavailableError,
    "RetriableException": StoreUnavailableError,
    "RetryStartFileException": StoreUnavailableError,
    "NotReplicatedYetException": StoreUnavailableError,
    "RecoveryInProgressException": StoreUnavailableError,
    "RpcServerException": StoreUnavailableError,
    "OperationFailed": StoreUnavailableError,
    "DataTransferError": StoreUnavailableError,
    "ChecksumError": StoreUnavailableError,
    "BlocksNotFound": StoreUnavailableError,
    "IOError": StoreUnavailableError,
    "DSQuotaExceededException": StoreFullError,
    "NSQuotaExceededException": StoreFullError,
    "QuotaByStorageTypeExceededException": StoreFullError,
    "QuotaExceededException": StoreFullError,
    "MaxDirectoryItemsExceededException": StoreFullError,
    "ParentNotDirectoryException": InvalidKeyError,
    "InvalidPathException": InvalidKeyError,
    "PathComponentTooLongException": InvalidKeyError,
}
"""By the Java class, or the client's own name of an error."""

_BY_MESSAGE: tuple[tuple[re.Pattern[str], type[OffloadError]], ...] = (
    (re.compile(r"is not a directory|must both be directories"), InvalidKeyError),
    (re.compile(r"could only be written to \d+ of the .*There are 0 datanode"), StoreUnavailableError),
    (re.compile(r"could only be written to \d+ of the .*(no|\b0) node\(s\) are excluded"), StoreFullError),
    (re.compile(r"could only be written to \d+ of the"), StoreUnavailableError),
    (re.compile(r"No NameNode hosts found|No fs.defaultFS setting found"), OptionError),
)
"""By what the message says, whatever the class."""

_HINTS: dict[type[OffloadError], str] = {
    InvalidKeyError: "A part of the key is an object already, or the key is a directory.",
    OptionError: "Give host:port, or a nameservice that the Hadoop configuration in config_dir knows.",
}


def translation(error: BaseException, doing: str, place: str) -> OffloadError:
    """The error to raise instead.

    Args:
        error: what the client raised.
        doing: what was attempted, a verb and its object.
        place: where, a URL without credentials.
    """
    failed = f"cannot {doing} in {place}"
    if isinstance(error, FileExistsError) and "is not a directory" in str(error):
        return InvalidKeyError(f"{failed}: {_short(_line(str(error)))}", hint=_HINTS[InvalidKeyError])
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"{failed}: there is nothing", found=_short(_line(str(error))))
    if isinstance(error, FileExistsError):
        return ObjectExistsError(f"{failed}: there is something already", found=_short(_line(str(error))))
    if isinstance(error, PermissionError):
        return AccessDeniedError(f"{failed}: permission denied", found=_short(_line(str(error))))
    if isinstance(error, OSError):
        return _of_name_node(place, failed) or StoreUnavailableError(
            f"{failed}: HDFS cannot be reached, or the connection broke", found=_short(_line(str(error)))
        )
    name, message = _parsed(str(error))
    kind = next((kind for pattern, kind in _BY_MESSAGE if pattern.search(message)), None)
    kind = kind or _KINDS.get(name, StoreError)
    if not isinstance(error, Exception):  # a panic of the client
        name, message, kind = type(error).__name__, _line(str(error)), StoreError
    return kind(
        f"{failed}: {_short(message)}" if message else failed, found=name or None, hint=_HINTS.get(kind)
    )


def _of_name_node(place: str, failed: str) -> StoreUnreachableError | None:
    """The error if nothing answers at the NameNode; a nameservice, which has no port, names several."""
    parts = urlsplit(place)
    if parts.hostname is None or parts.port is None:
        return None
    return unreachable_at(parts.hostname, parts.port, failed)


def _parsed(text: str) -> tuple[str, str]:
    """The class of a Java exception, or the client's own name of an error, and the message's first line."""
    found = _JAVA.match(text) or _OTHER.match(text)
    return (found[1], _line(found[2]).strip('"').rstrip('")')) if found else ("", _line(text))


def _line(message: str) -> str:
    return _END_OF_LINE.split(message.strip(), maxsplit=1)[0].strip()


def _short(line: str) -> str:
    return line if len(line) <= _MAX_MESSAGE else line[:_MAX_MESSAGE] + "…"
