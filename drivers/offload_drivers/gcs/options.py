"""The options of the driver `gcs`, checked and as values, and what a `gs:` URL stands for.

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
from offload_hooks.option_text import as_flag

SCHEME = "gs"

ALIASES = {
    "gcsManagedLedgerOffloadBucket": "bucket",
    "gcsManagedLedgerOffloadRegion": "region",
    "gcsManagedLedgerOffloadServiceAccountKeyFile": "service_account_file",
    "managedLedgerOffloadBucket": "bucket",
    "managedLedgerOffloadRegion": "region",
    "managedLedgerOffloadServiceEndpoint": "endpoint_url",
    # object_store, and so delta-rs, Polars and obstore
    "google_bucket": "bucket",
    "google_bucket_name": "bucket",
    "bucket_name": "bucket",
    "google_service_account": "service_account_file",
    "google_service_account_path": "service_account_file",
    "service_account": "service_account_file",
    "service_account_path": "service_account_file",
    "google_application_credentials": "service_account_file",
    "application_credentials": "service_account_file",
    "google_service_account_key": "service_account_json",
    "service_account_key": "service_account_json",
    "google_skip_signature": "anonymous",
    "skip_signature": "anonymous",
    "proxy_url": "proxy",
}
"""Pulsar's names of the options, and those of other tools."""

POINTLESS = {"project": None, "google_project_id": None, "allow_http": "true"}
"""Options of gcsfs and object_store that would change nothing, and the only value of each; None for any.

A project owns buckets, and none is made or listed; an endpoint with http is named on purpose.
"""

_GCSFS_TOKENS = ("anon", "browser", "cache", "cloud", "google_default")
"""Words that are no tokens: in gcsfs ways to find one."""

_BUCKET = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*\Z")
_BUCKET_RULE = "letters, digits, dots, dashes and underscores"
_STORAGE_CLASS = re.compile(r"[A-Z_]*\Z")
_OTHER = {"anonymous", "credentials", "connect_timeout_s", "read_timeout_s"}
"""The options that are no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """Place of a tier, credentials and limits; see `GcsDriver` for what each one means. Secrets are not in its repr."""

    bucket: str
    prefix: str
    region: str
    endpoint_url: str
    service_account_file: str
    service_account_json: str = field(repr=False)
    token: str = field(repr=False)
    credentials: CredentialOption = field(repr=False)
    anonymous: bool
    impersonate_service_account: str
    user_project: str
    storage_class: str
    ca_bundle: str
    proxy: str = field(repr=False)
    connect_timeout_s: float
    read_timeout_s: float


def checked_options(**given: object) -> GcsOptions:
    """The options of `GcsDriver` as values; `OptionError` for what makes no sense."""
    text = {
        name: as_text(name, value, lines=name == "service_account_json")
        for name, value in given.items()
        if name not in _OTHER
    }
    text["prefix"] = checked_prefix(text["prefix"])
    if text["token"] in _GCSFS_TOKENS or text["token"].endswith(".json"):
        raise OptionError(
            "the option 'token' is an access token, not a way to find one as in gcsfs",
            hint="Give {storage.anonymous=true} for 'anon', {storage.service_account_file} for a file, and nothing for "
            "Google's default credentials.",
        )
    text["endpoint_url"] = server_url("endpoint_url", text["endpoint_url"], with_path=False)
    text["storage_class"] = text["storage_class"].upper()
    if not _BUCKET.match(text["bucket"]):
        raise OptionError(
            "the option 'bucket' is no name of a bucket", expected=_BUCKET_RULE, found=repr(text["bucket"])
        )
    if not _STORAGE_CLASS.match(text["storage_class"]):
        raise OptionError("the option 'storage_class' is no storage class", found=repr(text["storage_class"]))
    text["proxy"] = proxy_url(text["proxy"])
    options = GcsOptions(
        **text,
        credentials=checked_call(given["credentials"]),
        anonymous=as_flag("anonymous", given["anonymous"] or False),
        connect_timeout_s=above_zero("connect_timeout_s", given["connect_timeout_s"]),
        read_timeout_s=above_zero("read_timeout_s", given["read_timeout_s"]),
    )
    _check_one_kind_of_credentials(options)
    if not options.anonymous:
        check_private(options.endpoint_url, "tokens of Google Cloud are sent", options.proxy)
    return options


def options_from_url(url: str) -> dict[str, object]:
    """The options that `gs://bucket/prefix` stands for; names are taken as they are, without %-escapes."""
    parts = split_url(url)
    if parts is None or parts.scheme.lower() != SCHEME:
        raise OptionError("the URL is not one of Google Cloud Storage", expected="gs://bucket/prefix")
    check_no_user(parts.netloc)
    check_no_query(url)
    check_name_in_url("bucket", parts.netloc, _BUCKET, form="gs://bucket/prefix", rule=_BUCKET_RULE)
    prefix = parts.path.strip("/")
    options: dict[str, object] = {"bucket": parts.netloc}
    return options | ({"prefix": prefix} if prefix else {})


def _check_one_kind_of_credentials(options: GcsOptions) -> None:
    kinds = ("service_account_file", "service_account_json", "token", "credentials", "anonymous")
    given = [kind for kind in kinds if getattr(options, kind)]
    if options.anonymous and options.impersonate_service_account:
        given.append("impersonate_service_account")
    check_one_at_most(given)
