"""The policies that name a tier, and the credentials of it that a lower level inherits.

A secret is sent only to servers that its own level, or one above, names. So a lower level inherits credentials only if
it changes nothing of the tier but a bucket, or the options in `_HARMLESS`: any other policy, known or not, may decide
about the server, the login, or what is sent. Values are by field, None where a level sets nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from offload_core.metadata.policies.offload_policies import OffloadPolicies

_BEHAVIOUR = frozenset(
    (
        *("threshold_in_bytes", "threshold_in_seconds", "deletion_lag_in_millis"),
        *("offloaded_read_priority", "tiered_read_priority", "max_threads", "read_threads"),
        *("prefetch_rounds", "rate_limit_in_bytes_per_second", "streaming", "max_segment_size_in_bytes"),
        *("max_segment_age_in_seconds", "filter", "filter_mode", "filter_options", "checksums"),
        *("max_block_size_in_bytes", "read_buffer_size_in_bytes", "s3_max_block_size_in_bytes"),
        *("s3_read_buffer_size_in_bytes", "gcs_max_block_size_in_bytes", "gcs_read_buffer_size_in_bytes"),
        "offloaders_directory",
    )
)
"""The fields about how and when, not where; a new field counts as one of the tier until it is added here."""

TIER_FIELDS = tuple(name for name in OffloadPolicies.model_fields if name not in _BEHAVIOUR)
"""The fields that name a tier: its driver, its place, how it is reached, and by which credentials."""

_BUCKETS = frozenset(("bucket", "s3_bucket", "gcs_bucket"))
_SESSION_NAME = "s3_role_session_name"
"""The name of a session in the store's logs; brokers write it into every namespace's policies."""
_WAYS = frozenset(
    (
        *("region", "s3_region", "gcs_region", "service_endpoint", "s3_service_endpoint"),
        *("file_system_profile_path", "file_system_uri"),
    )
)
"""Fields about how a tier is reached; without secrets."""

_EXTRA = "extra_configurations"
_HARMLESS = frozenset(("prefix", "storage_class", "connect_timeout_s", "read_timeout_s", "max_connections"))
"""The drivers' options that send nothing elsewhere."""

_WAY_OPTIONS = frozenset(
    (
        *("endpoint_url", "region", "proxy", "ca_bundle", "addressing_style", "payload_signing", "client"),
        *("checksum", "server_side_encryption", "account_name", "user_project", "sts_endpoint_url"),
        *("root", "url", "timeout_s", "replication"),
    )
)
"""The drivers' options about how a tier is reached; the only secret is a proxy's password, for that proxy."""

_CARRIED = frozenset(
    (
        *("s3_credential_secret", "secret_access_key", "token", "service_account_json", "account_key"),
        *("sas_token", "connection_string", "client_secret"),
    )
)
"""Credentials in a policy itself: with one of them, a driver does not search its surroundings."""

_ANONYMOUS = frozenset(("anonymous", "anon"))
_SERVERS = frozenset(("service_endpoint", "s3_service_endpoint"))
_NAMES_NO_SERVER = _HARMLESS | _CARRIED | _ANONYMOUS | frozenset(("access_key_id", "session_token", "region"))

_FAMILIES = {"aws-s3": "s3", "S3": "s3", "google-cloud-storage": "gcs", "azureblob": "azure"}
_WITHOUT_CREDENTIALS = frozenset(("local", "filesystem", "hdfs"))


def same_driver(name: str | None, other: str | None) -> bool:
    """True if two names are of one built-in driver, or the same."""
    return _FAMILIES.get(name or "", name or "") == _FAMILIES.get(other or "", other or "")


def tier_of(policies: OffloadPolicies | None) -> dict[str, Any]:
    """A level's policies of a tier, by field; an empty text counts."""
    fields = {} if policies is None else {name: getattr(policies, name) for name in TIER_FIELDS}
    return {name: value for name, value in fields.items() if value is not None}


def without_tier(policies: OffloadPolicies | None) -> OffloadPolicies | None:
    """The same without the fields of a tier."""
    return None if policies is None else policies.model_copy(update=dict.fromkeys(TIER_FIELDS))


def changed_ways(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names of changed fields and drivers' options that credentials do not survive, sorted.

    A mask of a secret, as any other value, is compared as it is.
    """
    names = [
        name
        for name in TIER_FIELDS
        if name not in (_EXTRA, "driver", _SESSION_NAME, *_BUCKETS)
        and _plain(before.get(name)) != _plain(after.get(name))
    ]
    if not same_driver(before.get("driver"), after.get("driver")):
        names.append("driver")
    was, is_now = before.get(_EXTRA) or {}, after.get(_EXTRA) or {}
    options = (was.keys() | is_now.keys()) - _HARMLESS
    return sorted([*names, *(name for name in options if was.get(name) != is_now.get(name))])


def changed_place(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The same as `changed_ways`, and the buckets that differ."""
    buckets = [name for name in _BUCKETS if _plain(before.get(name)) != _plain(after.get(name))]
    return sorted([*changed_ways(before, after), *buckets])


def inherited(before: Mapping[str, Any], after: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a tier in force for a level that changed how it is reached: without another driver's.

    Args:
        before: the values without that level.
        after: with it.
        own: those that the level itself sets.
    """
    if before.get("driver") and not same_driver(before["driver"], after.get("driver")):
        return dict(own)
    kept = {name: after.get(name) for name in ("driver", *_BUCKETS, *_WAYS)}
    options = {n: v for n, v in (after.get(_EXTRA) or {}).items() if n in _HARMLESS | _WAY_OPTIONS}
    return kept | {_EXTRA: options or None} | dict(own)


def has_credentials(values: Mapping[str, Any]) -> bool:
    """True if values of a tier may have credentials, name some, or ask for none."""
    fields = (name for name in values if name not in ("driver", _EXTRA, _SESSION_NAME, *_BUCKETS, *_WAYS))
    return any(_plain(values[name]) for name in fields) or any(
        name not in _HARMLESS | _WAY_OPTIONS for name, _ in _given_options(values)
    )


def asks_by_surroundings(values: Mapping[str, Any]) -> bool:
    """True if values of a tier name a server, but the credentials are the machine's, its environment's or files'."""
    if values.get("driver") in _WITHOUT_CREDENTIALS:
        return False
    options = dict(_given_options(values))
    names_server = any(_plain(values.get(name)) for name in _SERVERS) or any(
        name not in _NAMES_NO_SERVER for name in options
    )
    carries = _plain(values.get("s3_credential_secret")) or any(name in _CARRIED for name in options)
    is_anonymous = any(options.get(name, "").lower() == "true" for name in _ANONYMOUS)
    return names_server and not carries and not is_anonymous


def _given_options(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in (values.get(_EXTRA) or {}).items():
        if str(value).strip():
            yield name.casefold(), str(value).strip()


def _plain(value: Any) -> Any:
    """A value to be compared; None for an empty text, which names nothing."""
    return (value.get_secret_value() if isinstance(value, SecretStr) else value) or None
