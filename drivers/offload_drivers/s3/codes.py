"""What S3's error codes mean, as errors of `offload_hooks.errors`; among them those of other services that speak S3.

Sources: Amazon S3 API Reference, "Error responses", and that of STS.
"""

from __future__ import annotations

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
    UploadError,
)

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
"""What the store's error codes mean: the error, what is wrong (`{bucket}` stands for the bucket), what to do."""

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
