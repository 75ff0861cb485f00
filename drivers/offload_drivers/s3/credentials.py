"""Whose requests they are: an aiobotocore session with the credentials that the options ask for.

Without any option these are found by botocore's own chain: environment, profile, web identity, container, instance
role. The option `credentials` names a callable of the user's instead. A role to assume is assumed with them by STS.
What expires is fetched anew in time, by the session.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from typing import Any

from aiobotocore.config import AioConfig
from aiobotocore.credentials import (
    AioAssumeRoleCredentialFetcher,
    AioCredentialResolver,
    AioDeferredRefreshableCredentials,
)
from aiobotocore.session import AioSession
from botocore.credentials import CredentialProvider
from botocore.exceptions import NoCredentialsError
from botocore.loaders import create_loader
from botocore.utils import parse_timestamp

from offload_drivers.credential_calls import CredentialOption, fetch
from offload_drivers.s3.options import S3Options

DEFAULT_SESSION_NAME = "pulsar-offload"
_STS_REGION = "us-east-1"
"""Where roles are assumed when no region is known; STS has the same ones everywhere."""


def make_session(options: S3Options) -> Any:
    """A session for clients of S3. Nothing is asked of any server yet."""
    own = _new_session(options)
    if options.access_key_id:
        own.set_credentials(options.access_key_id, options.secret_access_key, options.session_token or None)
    elif options.credentials:
        _provide(own, _CalledProvider(options.credentials))
    if not options.role_arn:
        return own
    session = _new_session(options)
    _provide(session, _RoleProvider(own, options))
    return session


def _provide(session: Any, provider: CredentialProvider) -> None:
    session.register_component("credential_provider", AioCredentialResolver(providers=[provider]))


def network_config(options: S3Options) -> dict[str, Any]:
    """botocore's settings of the network, for S3 and STS alike."""
    config: dict[str, Any] = {
        "connect_timeout": options.connect_timeout_s,
        "read_timeout": options.read_timeout_s,
        # One try: a retry hidden in here would multiply those of the retry layer, and may not wait as long as the
        # store asks to. A create-only write that was made again could be told that its own object exists.
        "retries": {"total_max_attempts": 1},
    }
    if options.proxy:
        config["proxies"] = {"http": options.proxy, "https": options.proxy}
    return config


def _new_session(options: S3Options) -> Any:
    session = AioSession(profile=options.profile or None)
    session.register_component("data_loader", _service_models(session.get_config_variable("data_path")))
    # botocore's own way takes longer than all the rest of reading a page of a listing.
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_timestamp)
    return session


@cache
def _service_models(data_path: str | None) -> Any:
    """botocore's data on the services. To read it takes longer than all the rest of making a client."""
    return create_loader(data_path)


def _timestamp(text: Any) -> datetime:
    """A time in an answer, as botocore has it; listings have one for each object."""
    if isinstance(text, str) and text.endswith("Z") and text[:4].isdigit():
        with suppress(ValueError):
            return datetime.fromisoformat(f"{text[:-1]}+00:00")
    return parse_timestamp(text)  # type: ignore[no-any-return]


class _CalledProvider(CredentialProvider):  # type: ignore[misc]
    """The credentials that a callable of the user's returns, by a thread of its own, at the first use and in time."""

    METHOD = "pulsar-offload-callable"

    def __init__(self, call: CredentialOption) -> None:
        super().__init__()
        self._call = call

    async def load(self) -> Any:
        """See botocore."""
        return AioDeferredRefreshableCredentials(refresh_using=self._fetch, method=self.METHOD)

    async def _fetch(self) -> dict[str, Any]:
        found = await asyncio.to_thread(
            fetch, self._call, "access_key_id", "secret_access_key", optional="token"
        )
        return {
            "access_key": found.texts["access_key_id"],
            "secret_key": found.texts["secret_access_key"],
            "token": found.texts.get("token"),
            "expiry_time": found.expires_at.isoformat(),
        }


class _RoleProvider(CredentialProvider):  # type: ignore[misc]
    """The credentials of the role that the options name; STS is asked at the first use, and before they expire."""

    METHOD = "pulsar-offload-role"

    def __init__(self, own: Any, options: S3Options) -> None:
        super().__init__()
        self._own = own
        self._options = options

    async def load(self) -> Any:
        """See botocore."""
        source = await self._own.get_credentials()
        if source is None:
            raise NoCredentialsError
        options = self._options
        arguments = {"RoleSessionName": options.role_session_name or DEFAULT_SESSION_NAME}
        if options.external_id:
            arguments["ExternalId"] = options.external_id
        region = options.region or self._own.get_config_variable("region") or _STS_REGION
        fetcher = AioAssumeRoleCredentialFetcher(
            client_creator=partial(
                self._own.create_client,
                region_name=region,
                endpoint_url=options.sts_endpoint_url or None,
                verify=options.ca_bundle or None,
                config=AioConfig(**network_config(options)),
            ),
            source_credentials=source,
            role_arn=options.role_arn,
            extra_args=arguments,
        )
        return AioDeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method=self.METHOD)
