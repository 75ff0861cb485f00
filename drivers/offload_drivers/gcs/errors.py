"""Foreign exceptions of the driver `gcs` as errors of `offload_hooks.errors`: the one place where they are translated.

Texts of other libraries are not quoted, they may hold credentials; of the store's answer, its status and message
are, after `RefusalError` took the token out.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import aiohttp
import google.auth.exceptions

from offload_drivers.retry_after import seconds_to_wait
from offload_drivers.unreachable import unreachable
from offload_hooks.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    RangeError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from offload_hooks.json_text import read_json

_LONGEST_MESSAGE = 300
_THROTTLED = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "backendError")
_NO_BUCKET = "specified bucket does not exist"
_TOKEN = re.compile(r"(?i)(bearer\s+|access_token=|ya29\.)[^\s\"'&,;]+")


class RefusalError(Exception):
    """The store's answer with a status that is no success.

    Attributes:
        message: the store's own words, without the secret that was sent.
        content_range: the header of this name; after status 416 it has the object's size.
        is_of_bucket: whether it says that there is no such bucket.
        is_of_object: whether it says that there is no such object.
    """

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, secret: str = "") -> None:
        self.status = status
        self.reason, message = _reason_and_message(body, headers.get("Content-Type", ""))
        if secret:
            message = message.replace(secret, "(secret)")
        self.message = " ".join(_TOKEN.sub(r"\1(secret)", message).split())[:_LONGEST_MESSAGE]
        self.content_range = headers.get("Content-Range", "")
        self.is_of_bucket = status == 404 and _NO_BUCKET in self.message
        self.is_of_object = status == 404 and not self.is_of_bucket
        self.retry_after_s = seconds_to_wait(headers.get("Retry-After", ""))
        super().__init__(f"HTTP status {status}" + (f": {self.message}" if self.message else ""))


def proxy_refusal(status: int) -> RefusalError:
    """What is raised instead of aiohttp's error for a proxy that refuses, whose text holds the proxy's password."""
    body = f"the proxy answered with status {status}".encode()
    return RefusalError(status if status >= 500 else 407, {"Content-Type": "text/plain"}, body)


@contextmanager
def translated(what: str, bucket: str, key: str | None = None, *, creates: bool = False) -> Iterator[None]:
    """Errors of the store, its client and the credentials leave this block as ours.

    Args:
        what: what is attempted, a verb and its object.
        creates: whether it is the bucket that is missing when the store says that something is; so without a key.
    """
    try:
        yield
    except OffloadError as error:
        error.at(key=key)
        raise
    except Exception as error:
        if isinstance(error, TimeoutError) and isinstance(error.__cause__, OffloadError):
            raise error.__cause__ from error.__cause__.__cause__  # fsspec took our own for one of its loop
        translation = _translation(error, what, bucket, creates or key is None)
        if translation is None:
            raise
        raise translation.at(key=key) from error


def _translation(error: Exception, what: str, bucket: str, creates: bool) -> OffloadError | None:
    """The error to raise instead; None for one of our own faults."""
    failed = f"cannot {what}"
    if isinstance(error, RefusalError):
        return _refused(error, failed, bucket, creates)
    if isinstance(error, TimeoutError):
        return StoreTimeoutError(f"{failed}: the store did not answer in time", found=type(error).__name__)
    if isinstance(error, google.auth.exceptions.GoogleAuthError):
        return _no_token(error, failed)
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return StoreError(
            f"{failed}: the server's certificate is not trusted, or TLS failed",
            found=type(error).__name__,
            hint="{storage.ca_bundle} names the certificates to trust.",
        )
    if isinstance(error, aiohttp.InvalidURL):
        return StoreError(f"{failed}: the store's address is no URL")
    connection = unreachable(failed, error)
    if connection is not None:
        return connection
    if isinstance(error, aiohttp.ClientError | OSError):
        return StoreUnavailableError(
            f"{failed}: the store cannot be reached, or the connection broke", found=type(error).__name__
        )
    if isinstance(error, json.JSONDecodeError):
        return StoreError(f"{failed}: the store's answer is not that of Google Cloud Storage")
    return None


def _refused(error: RefusalError, failed: str, bucket: str, creates: bool) -> OffloadError:
    status = error.status
    if status == 404 and (creates or error.is_of_bucket):
        return ObjectNotFoundError(f"{failed}: there is no bucket {bucket!r}", found=str(error))
    if status == 404:
        return ObjectNotFoundError(f"{failed}: there is no such object in the bucket {bucket!r}")
    if status == 412:
        return ObjectExistsError(f"{failed}: there is an object already")
    if status == 416:
        return RangeError(f"{failed}: the object does not have this range")
    if status in (408, 504):
        return StoreTimeoutError(failed, found=str(error), retry_after_s=error.retry_after_s)
    if status == 429 or status >= 500 or error.reason in _THROTTLED:
        return StoreUnavailableError(failed, found=str(error), retry_after_s=error.retry_after_s)
    if status == 400 and "crc32c" in error.message.lower():
        return StoreUnavailableError(f"{failed}: the bytes were damaged on their way", found=str(error))
    if status == 400 and "requester pays" in error.message.lower():
        hint = "{storage.user_project} names the project that pays."
        return StoreError(failed, found=str(error), hint=hint)
    if status == 401:
        hint = "They may be wrong, expired or revoked."
        return AccessDeniedError(f"{failed}: the credentials are not accepted", found=str(error), hint=hint)
    if status in (403, 407):
        return AccessDeniedError(f"{failed}: not allowed", found=str(error))
    return StoreError(failed, found=str(error))


def _no_token(error: google.auth.exceptions.GoogleAuthError, failed: str) -> OffloadError:
    kind = type(error).__name__
    if isinstance(error, google.auth.exceptions.TransportError) or error.retryable:
        return StoreUnavailableError(f"{failed}: the server of access tokens cannot be reached", found=kind)
    return AccessDeniedError(
        f"{failed}: no access token can be had with these credentials",
        found=kind,
        hint="They may be wrong, expired or revoked.",
    )


def _reason_and_message(body: bytes, content_type: str) -> tuple[str, str]:
    """What an error's body says: JSON, or for media a line of plain text."""
    text = body.decode(errors="replace")
    try:
        error = read_json(text, "an error of the server")["error"]
        reasons = [str(each.get("reason", "")) for each in error.get("errors", [])]
        return (reasons or [""])[0], str(error.get("message", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return "", text if content_type.startswith("text/plain") else ""
