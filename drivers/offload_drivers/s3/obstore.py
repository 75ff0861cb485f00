"""The same bucket for obstore, with the same credentials, endpoint and line as botocore's client has them.

obstore looks at environment variables, too; what could send a request elsewhere or sign it otherwise is set here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from offload_drivers.s3.connection import S3Connection
from offload_drivers.s3.options import S3Options

_GLOBAL = "aws-global"
_CREDENTIALS_FOR = timedelta(minutes=5)
"""How long obstore may use credentials before it asks again: botocore renews them at least ten minutes ahead."""


def make_store(options: S3Options, connection: S3Connection) -> Any:
    """An obstore store of the options' bucket; call it outside of the event loop."""
    from obstore.store import S3Store

    meta = connection.files.run(connection.client).meta
    region = "us-east-1" if meta.region_name == _GLOBAL else meta.region_name
    virtual = options.addressing_style == "virtual"
    endpoint = _with_bucket(meta.endpoint_url, options.bucket) if virtual else meta.endpoint_url
    client_options: dict[str, Any] = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=options.connect_timeout_s),
        "read_timeout": timedelta(seconds=options.read_timeout_s),
    }
    if options.proxy:
        client_options["proxy_url"] = options.proxy
    if options.ca_bundle:
        client_options["root_certificate"] = Path(options.ca_bundle).read_bytes()

    def credentials() -> dict[str, Any]:
        found = connection.files.run(connection.credentials)
        return {
            "access_key_id": found.access_key,
            "secret_access_key": found.secret_key,
            "token": found.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_FOR,
        }

    return S3Store(
        options.bucket,
        config={
            "region": region,
            "endpoint": endpoint,
            "virtual_hosted_style_request": virtual,
            "skip_signature": options.anonymous,
            "request_payer": False,
        },
        client_options=client_options,
        retry_config={"max_retries": 0},
        credential_provider=None if options.anonymous else credentials,
    )


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
