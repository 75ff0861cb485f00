"""The options of the driver `s3`, checked and as values, and what an `s3:` URL stands for.

Options may come as text; an empty one counts as not given, as in Pulsar's configuration. What makes no sense is
refused with `OptionError`, which never repeats what may be a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offload_drivers.credential_calls import CredentialOption, checked_call
from offload_drivers.object_keys import checked_prefix
from offload_drivers.server_options import (
    above_zero,
    as_text,
    check_name_in_url,
    check_no_query,
    check_no_user,
    check_one_at_most,
    check_private,
    proxy_url,
    server_url,
    split_url,
)
from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_choice, as_count, as_flag

SCHEMES = ("s3", "s3a", "s3n")

ALIASES = {
    "s3ManagedLedgerOffloadBucket": "bucket",
    "s3ManagedLedgerOffloadRegion": "region",
    "s3ManagedLedgerOffloadServiceEndpoint": "endpoint_url",
    "s3ManagedLedgerOffloadRole": "role_arn",
    "s3ManagedLedgerOffloadRoleSessionName": "role_session_name",
    "s3ManagedLedgerOffloadCredentialId": "access_key_id",
    "s3ManagedLedgerOffloadCredentialSecret": "secret_access_key",
    "managedLedgerOffloadBucket": "bucket",
    "managedLedgerOffloadRegion": "region",
    "managedLedgerOffloadServiceEndpoint": "endpoint_url",
    # s3fs
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "anon": "anonymous",
    "client_kwargs.endpoint_url": "endpoint_url",
    "client_kwargs.region_name": "region",
    "client_kwargs.verify": "ca_bundle",
    # object_store, and so delta-rs, Polars and obstore
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "aws_token": "session_token",
    "aws_region": "region",
    "aws_default_region": "region",
    "default_region": "region",
    "aws_endpoint_url": "endpoint_url",
    "aws_endpoint": "endpoint_url",
    "endpoint": "endpoint_url",
    "aws_bucket": "bucket",
    "aws_bucket_name": "bucket",
    "bucket_name": "bucket",
    "aws_profile": "profile",
    "aws_iam_role_arn": "role_arn",
    "aws_iam_role_session_name": "role_session_name",
    "aws_skip_signature": "anonymous",
    "skip_signature": "anonymous",
    "aws_server_side_encryption": "server_side_encryption",
    "aws_sse_kms_key_id": "kms_key_id",
    "proxy_url": "proxy",
}
"""Pulsar's names of the options, and those of other tools."""

POINTLESS = {
    "aws_allow_http": "true",
    "allow_http": "true",
    "aws_s3_allow_unsafe_rename": None,
    "allow_unsafe_rename": None,
    "aws_conditional_put": "etag",
    "conditional_put": "etag",
}
"""Options of object_store and delta-rs that would change nothing, and the only value of each; None for any.

An endpoint with http is named on purpose, nothing is renamed, and create-only is the store's own condition always.
"""

ADDRESSING_STYLES = ("auto", "path", "virtual")
CHECKSUMS = ("crc32", "none")
PAYLOAD_SIGNING = ("auto", "always", "never")
ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}\Z|arn:aws[a-z-]*:s3[a-z-]*:[A-Za-z0-9:/._-]+\Z")
_REGION = re.compile(r"[A-Za-z0-9-]{0,63}\Z")
_BUCKET_RULE = "letters, digits, dots, dashes and underscores, or an ARN"
_OTHER = {"anonymous", "credentials", "connect_timeout_s", "read_timeout_s", "max_connections"}
"""The options that are no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """Place of a tier, credentials and limits; see `S3Driver` for what each one means. Secrets are not in its repr."""

    bucket: str
    prefix: str
    region: str
    endpoint_url: str
    profile: str
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    credentials: CredentialOption = field(repr=False)
    role_arn: str
    role_session_name: str
    external_id: str = field(repr=False)
    sts_endpoint_url: str
    anonymous: bool
    ca_bundle: str
    proxy: str = field(repr=False)
    addressing_style: str
    connect_timeout_s: float
    read_timeout_s: float
    max_connections: int
    checksum: str
    payload_signing: str
    server_side_encryption: str
    kms_key_id: str
    storage_class: str


def checked_options(**given: object) -> S3Options:
    """The options of `S3Driver` as values; `OptionError` for what makes no sense."""
    text = {name: as_text(name, value) for name, value in given.items() if name not in _OTHER}
    text["prefix"] = checked_prefix(text["prefix"])
    for name in ("endpoint_url", "sts_endpoint_url"):
        text[name] = server_url(name, text[name])
    for name, choices in (
        ("addressing_style", ADDRESSING_STYLES),
        ("checksum", CHECKSUMS),
        ("payload_signing", PAYLOAD_SIGNING),
        ("server_side_encryption", ("", *ENCRYPTIONS)),
    ):
        as_choice(name, text[name], choices)
    if not _BUCKET.match(text["bucket"]):
        raise OptionError(
            "the option 'bucket' is no name of a bucket", expected=_BUCKET_RULE, found=repr(text["bucket"])
        )
    if not _REGION.match(text["region"]):  # it becomes a part of the server's name
        raise OptionError(
            "the option 'region' is no name of a region",
            expected="letters, digits and dashes",
            found=repr(text["region"]),
        )
    text["proxy"] = proxy_url(text["proxy"])
    check_private(text["sts_endpoint_url"], "credentials of a role are received", text["proxy"])
    options = S3Options(
        **text,
        credentials=checked_call(given["credentials"]),
        anonymous=as_flag("anonymous", given["anonymous"] or False),
        connect_timeout_s=above_zero("connect_timeout_s", given["connect_timeout_s"]),
        read_timeout_s=above_zero("read_timeout_s", given["read_timeout_s"]),
        max_connections=as_count("max_connections", given["max_connections"]),
    )
    _check_credentials(options)
    if options.kms_key_id and not options.server_side_encryption.startswith("aws:kms"):
        raise OptionError(
            "the option 'kms_key_id' is of no use without encryption by such a key",
            hint="Set server_side_encryption to aws:kms or aws:kms:dsse.",
        )
    return options


def options_from_url(url: str) -> dict[str, object]:
    """The options that `s3://bucket/prefix` stands for; names are taken as they are, without %-escapes."""
    parts = split_url(url)
    if parts is None or parts.scheme.lower() not in SCHEMES:
        raise OptionError("the URL is not one of S3", expected="s3://bucket/prefix")
    check_no_user(parts.netloc)
    check_no_query(url)
    check_name_in_url("bucket", parts.netloc, _BUCKET, form="s3://bucket/prefix", rule=_BUCKET_RULE)
    prefix = parts.path.strip("/")
    options: dict[str, object] = {"bucket": parts.netloc}
    return options | ({"prefix": prefix} if prefix else {})


def _check_credentials(options: S3Options) -> None:
    if bool(options.access_key_id) != bool(options.secret_access_key):
        raise OptionError(
            "the options 'access_key_id' and 'secret_access_key' go together", hint="Give both."
        )
    if options.session_token and not options.access_key_id:
        raise OptionError("the option 'session_token' is of no use without 'access_key_id'")
    kinds = [
        name for name in ("access_key_id", "credentials", "profile", "anonymous") if getattr(options, name)
    ]
    if options.anonymous and options.role_arn:
        kinds.append("role_arn")
    check_one_at_most(kinds)
    for name in ("external_id", "sts_endpoint_url"):
        if getattr(options, name) and not options.role_arn:
            raise OptionError(f"the option {name!r} is of no use without 'role_arn'")
