"""The options of the driver `azure`, checked and as values, and what an `az:` or `abfs:` URL stands for.

Options may come as text; an empty one counts as not given, as in Pulsar's configuration. What makes no sense is
refused with `OptionError`, which never repeats what may be a secret. A URL may name an account only by a host of
Azure's own: the environment's credentials go to no other server unless the option `endpoint_url` names it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from offload_drivers.azure.keys import checked_blob_prefix
from offload_drivers.credential_calls import CredentialOption, checked_call
from offload_drivers.server_options import (
    above_zero,
    as_text,
    check_name_in_url,
    check_no_query,
    check_no_user,
    check_one_at_most,
    proxy_url,
    server_url,
    split_url,
)
from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_flag

SCHEMES = ("az", "abfs", "abfss")

ALIASES = {
    "anon": "anonymous",
    "bucket": "container",
    "managedLedgerOffloadBucket": "container",
    "managedLedgerOffloadServiceEndpoint": "endpoint_url",
    # object_store, and so delta-rs, Polars and obstore
    "azure_container_name": "container",
    "container_name": "container",
    "azure_storage_account_name": "account_name",
    "azure_storage_account_key": "account_key",
    "azure_storage_access_key": "account_key",
    "azure_storage_master_key": "account_key",
    "access_key": "account_key",
    "master_key": "account_key",
    "azure_storage_connection_string": "connection_string",
    "azure_storage_sas_key": "sas_token",
    "azure_storage_sas_token": "sas_token",
    "sas_key": "sas_token",
    "azure_storage_tenant_id": "tenant_id",
    "azure_storage_authority_id": "tenant_id",
    "azure_tenant_id": "tenant_id",
    "azure_authority_id": "tenant_id",
    "authority_id": "tenant_id",
    "azure_storage_client_id": "client_id",
    "azure_client_id": "client_id",
    "azure_storage_client_secret": "client_secret",
    "azure_client_secret": "client_secret",
    "azure_storage_endpoint": "endpoint_url",
    "azure_endpoint": "endpoint_url",
    "endpoint": "endpoint_url",
    "azure_skip_signature": "anonymous",
    "skip_signature": "anonymous",
    "proxy_url": "proxy",
}
"""Pulsar's names of the options, adlfs's where it differs, and those of other tools."""

POINTLESS = {"azure_allow_http": "true", "allow_http": "true"}
"""Options of object_store that would change nothing, and the only value of each: an endpoint with http is named on
purpose."""

PUBLIC_CLOUD = "blob.core.windows.net"

_CONTAINER = re.compile(r"\$root\Z|\$web\Z|(?=.{3,63}\Z)[a-z0-9](?:-?[a-z0-9])+\Z")
_CONTAINER_RULE = "3 to 63 lower-case letters, digits and single dashes between them"
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}\Z")
_HOST = re.compile(
    r"(?P<account>[a-z0-9]{3,24}(?:-secondary)?)(?P<zone>\.z[0-9]{1,3})?\.(?:blob|dfs)"
    r"(?P<cloud>\.core\.windows\.net|\.storage\.azure\.net|\.core\.usgovcloudapi\.net|\.core\.chinacloudapi\.cn)\Z"
)
_FORMS = "az://container/prefix or abfs://container@account.dfs.core.windows.net/prefix"
_OTHER = ("anonymous", "credentials", "connect_timeout_s", "read_timeout_s")
_CREDENTIALS = (
    "connection_string",
    "account_key",
    "sas_token",
    "client_secret",
    "managed_identity_client_id",
    "credentials",
    "anonymous",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureOptions:
    """Place of a tier, credentials and limits; see `AzureDriver`. Secrets are not in its repr."""

    container: str
    prefix: str
    account_name: str
    account_key: str = field(repr=False)
    sas_token: str = field(repr=False)
    connection_string: str = field(repr=False)
    tenant_id: str
    client_id: str
    client_secret: str = field(repr=False)
    managed_identity_client_id: str
    credentials: CredentialOption = field(repr=False)
    anonymous: bool
    endpoint_url: str
    ca_bundle: str
    proxy: str = field(repr=False)
    connect_timeout_s: float
    read_timeout_s: float


def checked_options(**given: object) -> AzureOptions:
    """The options of `AzureDriver` as values; `OptionError` for what makes no sense."""
    text = {name: as_text(name, value) for name, value in given.items() if name not in _OTHER}
    text["prefix"] = checked_blob_prefix(text["prefix"])
    text["endpoint_url"] = server_url(
        "endpoint_url", text["endpoint_url"], hint="A shared access signature is given by sas_token."
    )
    text["proxy"] = proxy_url(text["proxy"])
    if not _CONTAINER.match(text["container"]):
        raise OptionError(
            "the option 'container' is no name of a container",
            expected=_CONTAINER_RULE,
            found=repr(text["container"]),
        )
    if text["account_name"] and not _ACCOUNT.match(text["account_name"]):
        raise OptionError(
            "the option 'account_name' is no name of a storage account",
            expected="3 to 24 lower-case letters and digits",
            found=repr(text["account_name"]),
        )
    options = AzureOptions(
        **text,
        credentials=checked_call(given["credentials"]),
        anonymous=as_flag("anonymous", given["anonymous"] or False),
        connect_timeout_s=above_zero("connect_timeout_s", given["connect_timeout_s"]),
        read_timeout_s=above_zero("read_timeout_s", given["read_timeout_s"]),
    )
    _check_credentials(options)
    return options


def options_from_url(url: str) -> dict[str, object]:
    """The options that a URL stands for; names are taken as they are, without %-escapes."""
    parts = split_url(url)
    if parts is None or parts.scheme.lower() not in SCHEMES:
        raise OptionError("the URL is not one of Azure's blob storage", expected=_FORMS)
    check_no_query(url)
    container, at, host = parts.netloc.rpartition("@")
    check_no_user(container, ":@")
    account: dict[str, object] = {}
    if at:
        account = _account_of(host)
    else:
        container = host
    check_name_in_url("container", container, _CONTAINER, form=_FORMS, rule=_CONTAINER_RULE)
    prefix = parts.path.strip("/")
    return {"container": container} | account | ({"prefix": prefix} if prefix else {})


def account_of_endpoint(url: str) -> str:
    """The account of a blob endpoint: in its host, or in its path as emulators have it; empty if it has none."""
    parts = urlsplit(url)
    host = _HOST.match((parts.hostname or "").lower())
    if host is not None:
        return host["account"].removesuffix("-secondary")
    return parts.path.strip("/").partition("/")[0]


def _account_of(host: str) -> dict[str, object]:
    found = _HOST.match(host.lower())
    if found is None or host.lower().partition(".")[0].endswith("-secondary"):
        raise OptionError(
            "the URL's host is none of Azure's blob storage",
            expected=_FORMS,
            hint="Name another server by the option endpoint_url.",
        )
    account, endpoint = found["account"], f"{found['account']}{found['zone'] or ''}.blob{found['cloud']}"
    if endpoint == f"{account}.{PUBLIC_CLOUD}":
        return {"account_name": account}
    return {"account_name": account, "endpoint_url": f"https://{endpoint}"}


def _check_credentials(options: AzureOptions) -> None:
    kinds = [name for name in _CREDENTIALS if getattr(options, name)]
    check_one_at_most(kinds)
    service_principal = ("tenant_id", "client_id", "client_secret")
    given = [name for name in service_principal if getattr(options, name)]
    if given and len(given) < len(service_principal):
        raise OptionError(
            "the options 'tenant_id', 'client_id' and 'client_secret' go together",
            found=f"only {' and '.join(given)}",
            hint="A managed identity is named by managed_identity_client_id.",
        )
