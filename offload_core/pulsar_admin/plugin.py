"""What asks a broker's admin REST, with options as users give them: the same wherever a broker is asked."""

from __future__ import annotations

from offload_core.pulsar_admin.client import PulsarAdminClient
from offload_core.pulsar_admin.servers import Credentials, parse_servers, read_token
from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_count, as_seconds
from offload_hooks.tls_options import tls_context


class AdminPlugin:
    """A plugin that asks an admin REST; nothing is asked when it is made. Options may be text.

    Args:
        url: `http://broker:8080`; several brokers with commas between them. No other server is ever asked.
        token: a token (JWT).
        token_file: the file that holds it, instead.
        ca_bundle: the certificates that the servers are verified by, instead of the machine's.
        client_certificate, client_key: files of a certificate that the servers are shown, and of its key.
        timeout_s: how long one request may take.
        attempts: the most requests for one answer.

    Raises:
        OptionError: a URL or an option that is not right.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: str | None = None,
        ca_bundle: str | None = None,
        client_certificate: str | None = None,
        client_key: str | None = None,
        timeout_s: object = 30,
        attempts: object = 3,
    ) -> None:
        servers = parse_servers(url)
        is_tls = servers[0].startswith("https:")
        if not is_tls and (ca_bundle or client_certificate or client_key):
            raise OptionError("certificates are of no use without TLS", expected="a URL with https:")
        self._client = PulsarAdminClient(
            servers,
            Credentials(
                token=read_token(token, token_file),
                tls=tls_context(ca_bundle, client_certificate, client_key) if is_tls else None,
            ),
            timeout_s=as_seconds("timeout_s", timeout_s),
            attempts=as_count("attempts", attempts),
        )

    @property
    def client(self) -> PulsarAdminClient:
        """The client that it asks with."""
        return self._client

    def close(self) -> None:
        """Give back the connections."""
        self._client.close()
