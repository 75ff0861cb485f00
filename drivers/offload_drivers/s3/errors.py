"""What goes wrong below the driver `s3`, as errors of `offload_hooks.errors`: the one place where that is decided.

Of foreign texts only the store's own code and message are shown, shortened, and without whatever is as long as a key,
a token or a signature. Texts of the libraries are not: they may quote URLs, headers or options.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from botocore import exceptions as botocore
from botocore.parsers import ResponseParserError

from offload_drivers.retry_after import seconds_to_wait
from offload_drivers.unreachable import unreachable
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
    UploadError,
)

# What S3's error codes mean, as errors of `offload_hooks.errors`; among them those of other services that speak S3.
#
# Sources: Amazon S3 API Reference, "Error responses", and that of STS.


_ANOTHER_REGION = "The bucket is probably in another region: set the option region."
_EXPIRED = "The temporary credentials have expired: give new ones, or a role to assume, which is renewed."

CODES: dict[str, tuple[type[OffloadError], str, str | None]] = {
    code: (kind, what, hint)
    for kind, what, codes in (
        (
            AccessDeniedError,
            "the store denies it",
            {
                "AccessDenied": "The page of the driver lists the permissions that it needs.",
                "AllAccessDisabled": None,
                "AccountProblem": None,
                "ExpiredToken": _EXPIRED,
                "ExpiredTokenException": _EXPIRED,
                "InvalidAccessKeyId": "The store does not know the access key.",
                "InvalidClientTokenId": "The store does not know the access key.",
                "InvalidSecurity": None,
                "InvalidToken": "The session token does not belong to the access key.",
                "ProxyAuthenticationRequired": "Give the proxy's user and password in the option proxy.",
                "RequestTimeTooSkewed": "Set this machine's clock.",
                "SignatureDoesNotMatch": "The secret access key is wrong, or the region.",
                "TokenRefreshRequired": _EXPIRED,
            },
        ),
        (
            StoreUnavailableError,
            "the store cannot do it now",
            dict.fromkeys(
                (
                    "ConditionalRequestConflict",
                    "InternalError",
                    "OperationAborted",
                    "RequestLimitExceeded",
                    "RequestTimeout",
                    "ServiceUnavailable",
                    "SlowDown",
                    "Throttling",
                    "ThrottlingException",
                    "TooManyRequests",
                )
            ),
        ),
        (
            StoreUnavailableError,
            "the bytes were damaged on their way",
            dict.fromkeys(("BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch")),
        ),
        (
            StoreFullError,
            "the store is full",
            dict.fromkeys(("InsufficientStorage", "QuotaExceeded", "XMinioStorageFull")),
        ),
        (
            UploadError,
            "the store does not take these blocks",
            dict.fromkeys(("EntityTooLarge", "EntityTooSmall", "InvalidPart", "InvalidPartOrder")),
        ),
        (UploadError, "there is no such upload: it was committed or aborted", {"NoSuchUpload": None}),
        (ObjectNotFoundError, "there is no such object in the bucket {bucket}", {"NoSuchKey": None}),
        (ObjectNotFoundError, "there is no bucket {bucket}", {"NoSuchBucket": None}),
        (ObjectExistsError, "there is an object of this key already", {"PreconditionFailed": None}),
        (InvalidKeyError, "the store takes no key this long", {"KeyTooLongError": None}),
        (OptionError, "the store takes no bucket of this name", {"InvalidBucketName": None}),
        (
            StoreError,
            "the store serves this bucket elsewhere",
            dict.fromkeys(
                ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"),
                _ANOTHER_REGION,
            ),
        ),
    )
    for code, hint in codes.items()
}
"""The meaning of the store's error codes: the error, the fault (`{bucket}` stands for the bucket), what to do."""

STATUSES = {
    301: "PermanentRedirect",
    307: "PermanentRedirect",
    401: "AccessDenied",
    403: "AccessDenied",
    404: "NoSuchKey",
    407: "ProxyAuthenticationRequired",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    507: "InsufficientStorage",
}
"""The codes of answers that have none, or one that is not in `CODES`, by HTTP status."""


_NO_CREDENTIALS = (
    botocore.CredentialRetrievalError,
    botocore.MetadataRetrievalError,
    botocore.NoCredentialsError,
    botocore.PartialCredentialsError,
    botocore.SSOError,
    botocore.TokenRetrievalError,
)
_BAD_OPTIONS = (
    botocore.InvalidConfigError,
    botocore.InvalidProxiesConfigError,
    botocore.NoRegionError,
    botocore.ParamValidationError,
    botocore.ProfileNotFound,
)
_NO_ANSWER = (
    botocore.ConnectionError,
    botocore.HTTPClientError,
    botocore.IncompleteReadError,
    botocore.ResponseStreamingError,
    ResponseParserError,
    aiohttp.ClientError,
    OSError,
)
_TIME_OUT = (botocore.ConnectTimeoutError, botocore.ReadTimeoutError, TimeoutError)

_SECRET_LIKE = re.compile(r"[A-Za-z0-9+/=%_-]{40,}")
_LONGEST_TEXT = 300


@contextmanager
def translated(action: str, bucket: str, key: str | None = None) -> Iterator[None]:
    """Raise errors of this block as `OffloadError`s that state what was attempted, on which key."""
    try:
        yield
    except OffloadError:
        raise
    except botocore.ClientError as error:
        error.args = (_shown(str(error)),)  # a traceback shows the cause as well
        raise _of_answer(error, action, bucket, key) from error
    except Exception as error:
        inside = error.__cause__
        if isinstance(inside, OffloadError):  # fsspec, on its event loop, puts its own time-out before ours
            raise inside from inside.__cause__
        if isinstance(error, botocore.ProxyConnectionError):
            error.__context__ = None  # aiohttp's own, whose text has the proxy's password
        raise _of_no_answer(error, action, bucket, key) from error


def refusal(
    action: str,
    bucket: str,
    key: str | None,
    code: str,
    message: str,
    status: int = 0,
    wait_s: float | None = None,
) -> OffloadError:
    """The error for a refusal by the store."""
    known = code if code in CODES else STATUSES.get(status, "InternalError" if status >= 500 else "")
    kind, what, hint = CODES.get(known, (StoreError, "the store refuses it", None))
    if kind is StoreError and "checksum" in message.lower():
        hint = "If the store does not know the checksum, give {storage.checksum=none}."
    fields: dict[str, Any] = {"key": key, "hint": hint}
    if kind not in (ObjectNotFoundError, ObjectExistsError):
        fields["found"] = _shown(f"{code or status}: {message}")
    if issubclass(kind, StoreUnavailableError):
        fields["retry_after_s"] = wait_s
    return kind(f"cannot {action}: {what.format(bucket=repr(bucket))}", **fields)


def _of_answer(error: botocore.ClientError, action: str, bucket: str, key: str | None) -> OffloadError:
    fault, answer = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
    status, code = answer.get("HTTPStatusCode", 0), str(fault.get("Code", ""))
    wait_s = seconds_to_wait(answer.get("HTTPHeaders", {}).get("retry-after", ""))
    refused = refusal(action, bucket, key, code, str(fault.get("Message", "")), status, wait_s)
    if error.operation_name == "AssumeRole" and not refused.retryable:
        return AccessDeniedError(
            f"cannot {action}: the role is not to be assumed",
            key=key,
            found=refused.found,
            hint="Check {storage.role_arn}, and whether the role trusts those who ask.",
        )
    return refused


def _of_no_answer(error: Exception, action: str, bucket: str, key: str | None) -> OffloadError:
    inner = getattr(error, "kwargs", {}).get("error")  # what the HTTP client raised, as botocore wraps it
    found = type(error if inner is None else inner).__name__
    if isinstance(error, _TIME_OUT):
        return StoreTimeoutError(f"cannot {action}: the store did not answer in time", key=key, found=found)
    if isinstance(inner, aiohttp.ClientHttpProxyError) and inner.status in (403, 407):
        return refusal(action, bucket, key, "", "from the proxy", inner.status)
    if FileNotFoundError in (type(error), type(inner)):
        return OptionError(f"cannot {action}: the file of the option 'ca_bundle' is not there", key=key)
    if isinstance(inner, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
        return StoreError(
            f"cannot {action}: the store's certificate is not trusted",
            key=key,
            hint="Name a file with the authority's certificate: {storage.ca_bundle}.",
        )
    if isinstance(error, _NO_CREDENTIALS) or _is_failed_refresh(error):
        return AccessDeniedError(
            f"cannot {action}: no usable credentials are found",
            key=key,
            found=found,
            hint="Give {storage.access_key_id} and {storage.secret_access_key}, a profile, a role, or "
            "{storage.anonymous=true}; "
            "or set up the environment as for other AWS tools.",
        )
    if isinstance(error, _BAD_OPTIONS):
        return OptionError(
            f"cannot {action}: an option or the AWS configuration is wrong", key=key, found=found
        )
    connection = unreachable(f"cannot {action}", error if inner is None else inner)
    if connection is not None:
        return connection.at(key=key)
    if isinstance(error, _NO_ANSWER):
        return StoreUnavailableError(f"cannot {action}: the store does not answer", key=key, found=found)
    return StoreError(f"cannot {action}", key=key, found=found)


def _is_failed_refresh(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and "credentials" in str(error)


def _shown(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return _SECRET_LIKE.sub("…", printable)[:_LONGEST_TEXT]
