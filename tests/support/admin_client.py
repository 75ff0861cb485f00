"""A client of an admin REST, as tests call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offload_core.pulsar_admin import Credentials, PulsarAdminClient, parse_servers
from offload_hooks.tls_options import tls_context

TOKEN = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"  # no server knows it


PATH = "/admin/v2/tenants"


@contextmanager
def client_of(
    url: str,
    *,
    token: str | None = TOKEN,
    ca_bundle: Path | None = None,
    timeout_s: float = 30,
    attempts: int = 1,
) -> Iterator[PulsarAdminClient]:
    servers = parse_servers(url)
    tls = tls_context(str(ca_bundle), None, None) if ca_bundle else None
    made = PulsarAdminClient(
        servers, Credentials(token=token, tls=tls), timeout_s=timeout_s, attempts=attempts
    )
    try:
        yield made
    finally:
        made.close()


def asked(url: str, **options: object) -> object:
    with client_of(url, **options) as client:  # type: ignore[arg-type]
        return client.get_json(PATH)
