"""The options of the driver `gcs`, checked and as values, and what a `gs:` URL stands for.

Options may come as text; an empty one counts as not given, as in Pulsar's configuration. What makes no sense is
refused with `OptionError`, which never repeats what may be a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from offload_drivers.object_keys import checked_prefix
from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_flag, as_seconds

SCHEME = "gs"

ALIASES = {
    "gcsManagedLedgerOffloadBucket": "bucket",
    "gcsManagedLedgerOffloadRegion": "region",
    "gcsManagedLedgerOffloadServiceAccountKeyFile": "service_account_file",
    "managedLedgerOffloadBucket": "bucket",
    "managedLedgerOffloadRegion": "region",
    "managedLedgerOffloadServiceEndpoint": "endpoint_url",
}
"""Pulsar's names of the options."""

_BUCKET = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*\Z")
_STORAGE_CLASS = re.compile(r"[A-Z_]*\Z")
_OTHER = {"anonymous", "connect_timeout_s", "read_timeout_s"}
"""The options that are no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsOptions:
    """Where a tier is and how it is reached; see `GcsDriver` for what each one means. Secrets are not in its repr."""

    bucket: str
    prefix: str
    region: str
    endpoint_url: str
    service_account_file: str
    service_account_json: str = field(repr=False)
    token: str = field(repr=False)
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
    text = {name: _text(name, value) for name, value in given.items() if name not in _OTHER}
    text["prefix"] = checked_prefix(text["prefix"])
    text["endpoint_url"] = _server("endpoint_url", text["endpoint_url"])
    text["storage_class"] = text["storage_class"].upper()
    if not _BUCKET.match(text["bucket"]):
        raise OptionError("the option 'bucket' is no name of a bucket", found=repr(text["bucket"]))
    if not _STORAGE_CLASS.match(text["storage_class"]):
        raise OptionError("the option 'storage_class' is no storage class", found=repr(text["storage_class"]))
    _check_proxy(text["proxy"])
    options = GcsOptions(
        **text,
        anonymous=as_flag("anonymous", given["anonymous"] or False),
        connect_timeout_s=_above_zero("connect_timeout_s", given["connect_timeout_s"]),
        read_timeout_s=_above_zero("read_timeout_s", given["read_timeout_s"]),
    )
    _check_one_kind_of_credentials(options)
    return options


def options_from_url(url: str) -> dict[str, object]:
    """The options that `gs://bucket/prefix` stands for; names are taken as they are, without %-escapes."""
    parts = _split(url)
    if parts is None or parts.scheme.lower() != SCHEME:
        raise OptionError("the URL is not one of Google Cloud Storage", expected="gs://bucket/prefix")
    if "@" in parts.netloc:
        raise OptionError(
            "the URL must not hold a user or password",
            hint="Give credentials by option, or leave them to the environment.",
        )
    if "?" in url or "#" in url:
        raise OptionError("the URL must not have a query or fragment", hint="Give options by name instead.")
    prefix = parts.path.strip("/")
    if not _BUCKET.match(parts.netloc):
        raise OptionError("the URL names no bucket", expected="gs://bucket/prefix")
    options: dict[str, object] = {"bucket": parts.netloc}
    return options | ({"prefix": prefix} if prefix else {})


def _check_one_kind_of_credentials(options: GcsOptions) -> None:
    kinds = ("service_account_file", "service_account_json", "token", "anonymous")
    given = [kind for kind in kinds if getattr(options, kind)]
    if options.anonymous and options.impersonate_service_account:
        given.append("impersonate_service_account")
    if len(given) > 1:
        raise OptionError(
            f"the options {' and '.join(repr(kind) for kind in given)} exclude each other", hint="Give one."
        )


def _text(name: str, value: object) -> str:
    text = "" if value is None else str(value).strip()
    if name != "service_account_json" and any(character < " " or character == "\x7f" for character in text):
        raise OptionError(f"the option {name!r} holds a control character")
    return text


def _server(name: str, url: str) -> str:
    """A URL of scheme, host and port only, without a slash at its end."""
    if not url:
        return ""
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise OptionError(
            f"the option {name!r} is no URL of a server", expected="http://host:port or https://host"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise OptionError(f"the option {name!r} must have nothing behind host and port")
    return f"{parts.scheme}://{parts.netloc}"


def _check_proxy(url: str) -> None:
    parts = _split(url)
    if url and (parts is None or parts.scheme not in ("http", "https") or not parts.hostname):
        raise OptionError("the option 'proxy' is no URL of a proxy", expected="http://host:port")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - its check is wanted
    except ValueError:
        return None
    return parts


def _above_zero(name: str, value: object) -> float:
    seconds = as_seconds(name, value)
    if not seconds:
        raise OptionError(f"the option {name!r} is 0", expected="more than 0 seconds")
    return seconds
