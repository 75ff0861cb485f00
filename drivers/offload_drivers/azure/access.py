"""Account and credentials of a tier: from options first, then the environment, then Azure's identities.

The environment's variables are those of Azure's own tools, of Pulsar and of adlfs. What the environment holds of one
account is not used for another one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential

from offload_drivers.azure.options import PUBLIC_CLOUD, AzureOptions, account_of_endpoint
from offload_drivers.credential_calls import CredentialOption, fetch
from offload_drivers.server_options import check_private
from offload_hooks.errors import OptionError

CONNECTION_STRING_VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
ACCOUNT_VARIABLES = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
KEY_VARIABLES = ("AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
SAS_VARIABLE = "AZURE_STORAGE_SAS_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Address and credentials of an account.

    Attributes:
        account_url: the URL of its blob service, without credentials.
        kind: the kind of credentials, for people.
        make_credential: makes what the client takes for its credential; an identity has connections of its own, so
            each process makes one.
        secrets: what must never be shown.
    """

    account_url: str
    kind: str
    make_credential: Callable[[], Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConnectionString:
    account: str
    account_url: str
    key: str = field(repr=False)
    sas: str = field(repr=False)


def resolve(options: AzureOptions, environ: Mapping[str, str]) -> Access:
    """The account and credentials that these options and this environment stand for.

    `OptionError` when no account is named, or when credentials are malformed.
    """
    connection = _connection(options, environ)
    account = _account(options, connection, environ)
    url = options.endpoint_url
    if not url and connection is not None:
        url = connection.account_url
    elif not url:
        url = f"https://{account}.{PUBLIC_CLOUD}"
    key, sas = _key_and_sas(options, connection, account, environ)
    secrets = _secrets(options, key, sas)
    if options.anonymous:
        return Access(account_url=url, kind="anonymous", make_credential=_nobody, secrets=secrets)
    if key:
        _check_key(key)
        credential = AzureNamedKeyCredential(account, key)
        return Access(
            account_url=url, kind="account key", make_credential=lambda: credential, secrets=secrets
        )
    if sas:
        check_private(url, "a shared access signature is sent", options.proxy)
        signature = AzureSasCredential(sas.lstrip("?"))
        return Access(account_url=url, kind="SAS token", make_credential=lambda: signature, secrets=secrets)
    if urlsplit(url).scheme.lower() != "https":
        raise OptionError(
            "an identity's tokens are sent over https only",
            found=url,
            hint="Give an endpoint with https, or another kind of credentials.",
        )
    kind, make = _identity(options)
    return Access(account_url=url, kind=kind, make_credential=make, secrets=secrets)


def _connection(options: AzureOptions, environ: Mapping[str, str]) -> _ConnectionString | None:
    """The connection string that counts, if one does."""
    if options.connection_string:
        connection = _parsed(options.connection_string, "the option 'connection_string'")
        if options.account_name and connection.account != options.account_name:
            raise OptionError(
                "the option 'connection_string' is of another account than 'account_name'",
                expected=options.account_name,
                found=connection.account,
            )
        return connection
    text = environ.get(CONNECTION_STRING_VARIABLE, "").strip()
    if not text or _has_credentials(options):
        return None
    connection = _parsed(text, f"the environment's {CONNECTION_STRING_VARIABLE}")
    wanted = options.account_name or (options.endpoint_url and account_of_endpoint(options.endpoint_url))
    return connection if not wanted or connection.account == wanted else None


def _account(options: AzureOptions, connection: _ConnectionString | None, environ: Mapping[str, str]) -> str:
    account = (
        options.account_name
        or (connection.account if connection else "")
        or account_of_endpoint(options.endpoint_url)
        or _first(environ, ACCOUNT_VARIABLES)
    )
    if not account and not options.endpoint_url:
        raise OptionError(
            "no storage account is named",
            hint="Give account_name, endpoint_url or connection_string, a URL with the account, or set "
            f"{CONNECTION_STRING_VARIABLE} or {ACCOUNT_VARIABLES[0]}.",
        )
    return account


def _key_and_sas(
    options: AzureOptions, connection: _ConnectionString | None, account: str, environ: Mapping[str, str]
) -> tuple[str, str]:
    if connection is not None:
        return connection.key, connection.sas
    if options.account_key or options.sas_token:
        if options.account_key and not account:
            raise OptionError("an account key needs the account's name", hint="Give account_name.")
        return options.account_key, options.sas_token
    if _has_credentials(options) or _first(environ, ACCOUNT_VARIABLES) not in ("", account):
        return "", ""
    key = _first(environ, KEY_VARIABLES) if account else ""
    return key, "" if key else environ.get(SAS_VARIABLE, "").strip()


def _has_credentials(options: AzureOptions) -> bool:
    return bool(
        options.connection_string
        or options.account_key
        or options.sas_token
        or options.client_secret
        or options.managed_identity_client_id
        or options.credentials
        or options.anonymous
    )


def _identity(options: AzureOptions) -> tuple[str, Callable[[], Any]]:
    """The kind of identity, and what makes it; the library for it is slow to import and not needed for the others."""
    line: dict[str, Any] = {
        "connection_timeout": options.connect_timeout_s,
        "read_timeout": options.read_timeout_s,
    }
    if options.proxy:
        line["proxies"] = {"http": options.proxy, "https": options.proxy}
    if options.ca_bundle:
        line["connection_verify"] = options.ca_bundle

    def service_principal() -> Any:
        from azure.identity.aio import ClientSecretCredential

        return ClientSecretCredential(options.tenant_id, options.client_id, options.client_secret, **line)

    def managed_identity() -> Any:
        from azure.identity.aio import ManagedIdentityCredential

        return ManagedIdentityCredential(client_id=options.managed_identity_client_id, **line)

    def default_chain() -> Any:
        from azure.identity.aio import DefaultAzureCredential

        return DefaultAzureCredential(**line)

    if options.credentials:
        return "callable", partial(_CalledTokens, options.credentials)
    if options.client_secret:
        return "service principal", service_principal
    if options.managed_identity_client_id:
        return "managed identity", managed_identity
    return "default identity", default_chain


class _CalledTokens:
    """Tokens that a callable of the user's returns, as the SDK asks for them: anew before one expires."""

    def __init__(self, call: CredentialOption) -> None:
        self._call = call

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        """See `azure.core.credentials_async.AsyncTokenCredential`."""
        found = await asyncio.to_thread(fetch, self._call, "token")
        return AccessToken(found.texts["token"], int(found.expires_at.timestamp()))


def _nobody() -> None:
    return None


def _parsed(text: str, where: str) -> _ConnectionString:
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    values = {name.strip().lower(): value.strip() for name, _, value in pairs}
    url, account = values.get("blobendpoint", "").rstrip("/"), values.get("accountname", "")
    if not url and account:
        suffix = values.get("endpointsuffix", "core.windows.net")
        url = f"{values.get('defaultendpointsprotocol', 'https')}://{account}.blob.{suffix}"
    parts = urlsplit(url)
    sas = values.get("sharedaccesssignature", "") or parts.query
    key = values.get("accountkey", "")
    if (
        not parts.hostname
        or "@" in parts.netloc
        or not (key or sas)
        or not all(equals for _, equals, _ in pairs)
    ):
        raise OptionError(
            f"{where} is malformed",
            expected="AccountName=...;AccountKey=..., or BlobEndpoint=...;SharedAccessSignature=...",
        )
    url = parts._replace(query="", fragment="").geturl().rstrip("/")
    return _ConnectionString(account=account or account_of_endpoint(url), account_url=url, key=key, sas=sas)


def _check_key(key: str) -> None:
    try:
        base64.b64decode(key, validate=True)
    except binascii.Error:
        raise OptionError(
            "the account key is not base64", hint="Copy it whole, with its '=' at the end."
        ) from None


def _secrets(options: AzureOptions, key: str, sas: str) -> tuple[str, ...]:
    signatures = parse_qs(sas.lstrip("?")).get("sig", [])
    raw = [pair.partition("=")[2] for pair in sas.lstrip("?").split("&") if pair.startswith("sig=")]
    password = urlsplit(options.proxy).password or ""
    found = {key, sas.lstrip("?"), *signatures, *raw, options.client_secret, options.connection_string}
    return tuple(sorted({secret for secret in found | {password, unquote(password)} if secret}))


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := environ.get(name, "").strip())), "")
