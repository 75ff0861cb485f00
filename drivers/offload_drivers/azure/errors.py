"""Foreign exceptions of the driver `azure` as errors of `offload_hooks.errors`: the one place of their translation.

Azure tells what happened by a status and a code (`BlobNotFound`, `ServerBusy`). Only these two are quoted: the
texts of Azure and of the client may hold parts of a request, and so of a signature. A foreign exception whose own
text holds a secret does not become the cause of ours.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    IncompleteReadError,
    ServiceRequestTimeoutError,
    ServiceResponseTimeoutError,
)

from offload_drivers.retry_after import seconds_to_wait
from offload_drivers.unreachable import unreachable
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    RangeError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    UploadError,
)
from offload_hooks.json_text import whole_number

_NO_CONTAINER = ("ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound")
_NOT_NOW = ("ServerBusy", "InternalError", "TooManyRequests", "BlobBeingRehydrated")
_TOO_LATE = ("OperationTimedOut", "RequestTimeout")
_NAMES = ("InvalidUri", "InvalidResourceName", "OutOfRangeInput")
_HINTS = {
    "AuthenticationFailed": "The key or token is wrong or expired, or this machine's clock is.",
    "AuthorizationFailure": "The key is wrong, or the account's network rules keep this machine out.",
    "AuthorizationPermissionMismatch": "The identity needs the role Storage Blob Data Contributor (or Reader).",
    "BlobArchived": "Rehydrate the blob: move it to the hot or cool tier.",
    "BlobImmutableDueToPolicy": "An immutability policy or legal hold protects the object.",
    "KeyBasedAuthenticationNotPermitted": "The account takes no keys: use an identity.",
    "LeaseIdMissing": "Somebody holds a lease on the blob.",
    "NoAuthenticationInformation": "No credentials were sent: give some, or allow public access.",
    "PublicAccessNotPermitted": "The account allows no public access: give credentials.",
}
_DENIED = (
    "BlobImmutableDueToPolicy",
    "InvalidAuthenticationInfo",
    "PublicAccessNotPermitted",
    "KeyBasedAuthenticationNotPermitted",
)
_LOST_BLOCKS = {
    "InvalidBlockList": "blocks of the upload are not in the store (any more)",
    "InvalidBlobOrBlock": "another program's blocks of this blob are in the way",
    "InvalidBlockId": "another program's blocks of this blob are in the way",
    "BlockCountExceedsLimit": "the blob has too many uncommitted blocks",
}
_BLOCK_HINTS = {
    "InvalidBlockList": "Another commit to the same key ended this upload, or it is older than a week.",
    "BlockCountExceedsLimit": "A commit to the same key, or a week's wait, clears those of uploads that were left.",
}


def code_of(error: BaseException) -> str:
    """The code that Azure gave its refusal; empty if it is none of Azure's."""
    response: Any = getattr(error, "response", None)
    if response is None:
        return ""
    code = response.headers.get("x-ms-error-code") or getattr(error, "error_code", None) or ""
    return str(getattr(code, "value", code))


def exists_already(error: BaseException) -> bool:
    """True if a create-only write was refused because there is a blob."""
    return code_of(error) in (
        "BlobAlreadyExists",
        "ConditionNotMet",
        "UnauthorizedBlobOverwrite",
        "PathAlreadyExists",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Translator:
    """Translates for one tier: `container` is named where it is missing, `secrets` are never shown."""

    container: str
    secrets: Sequence[str] = field(default=(), repr=False)

    @contextmanager
    def translated(self, what: str, key: str | None = None) -> Iterator[None]:
        """Errors of Azure, its client and the credentials leave this block as ours.

        Args:
            what: what is attempted, a verb and its object.
            key: the object it is attempted on.
        """
        try:
            yield
        except OffloadError as error:
            error.at(key=key)
            raise
        except Exception as error:
            translation = self._translation(error, f"cannot {what}").at(key=key)
            if self._tells_secrets(error):
                raise translation from None
            raise translation from error

    def _translation(self, error: BaseException, failed: str) -> OffloadError:
        if isinstance(error, TimeoutError | ServiceRequestTimeoutError | ServiceResponseTimeoutError):
            return StoreTimeoutError(
                f"{failed}: the store did not answer in time", found=type(error).__name__
            )
        if isinstance(error, HttpResponseError) and not isinstance(error, IncompleteReadError):
            if error.response is not None:
                return self._refused(error, failed)
            if error.inner_exception is not None and error.inner_exception is not error:
                return self._translation(error.inner_exception, failed)
            if isinstance(error, ClientAuthenticationError):
                return AccessDeniedError(
                    f"{failed}: no credentials were found, or they give no token",
                    found=type(error).__name__,
                    hint="Give {storage.account_key}, {storage.sas_token}, {storage.connection_string} or an "
                    "identity, or set the environment's.",
                )
            return StoreError(
                f"{failed}: the store's answer is not that of Azure", found=type(error).__name__
            )
        if any(isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError) for cause in _chain(error)):
            return StoreError(
                f"{failed}: the server's certificate is not trusted, or TLS failed",
                hint="{storage.ca_bundle} names the certificates to trust.",
            )
        connection = unreachable(failed, error)
        if connection is not None:
            return connection
        if isinstance(error, AzureError | aiohttp.ClientError | OSError):
            return StoreUnavailableError(
                f"{failed}: the store cannot be reached, or the connection broke", found=type(error).__name__
            )
        # Whatever the client stumbles over in an answer that is none of Azure's: ValueError, TypeError, ...
        return StoreError(f"{failed}: the store's answer is not that of Azure", found=type(error).__name__)

    def _refused(self, error: HttpResponseError, failed: str) -> OffloadError:
        status, code = error.status_code or 0, code_of(error)
        response: Any = error.response
        headers: Mapping[str, str] = response.headers
        found = f"HTTP status {status}" + (f", {code}" if code else "")
        hint = _HINTS.get(code)
        if code in _NO_CONTAINER:
            return ObjectNotFoundError(f"{failed}: there is no container {self.container!r}", found=found)
        if code in _LOST_BLOCKS:
            return UploadError(f"{failed}: {_LOST_BLOCKS[code]}", found=found, hint=_BLOCK_HINTS.get(code))
        if status == 404:
            return ObjectNotFoundError(
                f"{failed}: there is no such object in the container {self.container!r}"
            )
        if exists_already(error):
            return ObjectExistsError(f"{failed}: there is an object already")
        if status == 416:
            return RangeError(f"{failed}: the object does not have this range")
        if code in _TOO_LATE or status == 408:
            return StoreTimeoutError(failed, found=found, retry_after_s=retry_after_s(headers))
        if code in _NOT_NOW or status == 429 or status in (500, 502, 503, 504):
            return StoreUnavailableError(failed, found=found, retry_after_s=retry_after_s(headers))
        if status == 507:
            return StoreFullError(f"{failed}: no room is left", found=found)
        if status in (401, 403, 407) or code in _DENIED:
            return AccessDeniedError(f"{failed}: not allowed", found=found, hint=hint)
        if code in _NAMES:
            return InvalidKeyError(f"{failed}: Azure takes no such name", found=found)
        return StoreError(failed, found=found, hint=hint)

    def _tells_secrets(self, error: BaseException) -> bool:
        texts = [f"{cause} {cause!r}" for cause in _chain(error)]
        return any(secret in text for secret in self.secrets for text in texts)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that the store asks for, in seconds from now; None if it gives none that makes sense."""
    for name in ("x-ms-retry-after-ms", "retry-after-ms"):
        milliseconds = whole_number(headers.get(name, ""))
        if milliseconds is not None:
            return milliseconds / 1000
    return seconds_to_wait(headers.get("Retry-After", ""))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and all that it came from."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            waiting += [cause.__cause__, cause.__context__, getattr(cause, "inner_exception", None)]
