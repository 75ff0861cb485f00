"""Topics' schemas as a broker's admin REST tells them. Source: docs/schemas.md, "Who knows the schemas"."""

from __future__ import annotations

from urllib.parse import quote

from offload_core.catalogue import parse_topic
from offload_core.pulsar_admin import open_admin
from offload_core.schemas.history import history_from_rest
from offload_hooks.errors import placed
from offload_hooks.schemas import SchemaHistory


class AdminSchemas:
    """The schema provider `admin`; its options are those of the metadata store `http:`.

    Args:
        url: `http://broker:8080`; several brokers with commas between them. No other server is ever asked.
        token: a token (JWT).
        token_file: the file that holds it, instead.
        ca_bundle: the certificates that the servers are verified by, instead of the machine's.
        client_certificate, client_key: files of a certificate that the servers are shown, and of its key.
        timeout_s: how long one request may take.
        attempts: the most requests for one answer.
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
        self._client = open_admin(
            url,
            token=token,
            token_file=token_file,
            ca_bundle=ca_bundle,
            client_certificate=client_certificate,
            client_key=client_key,
            timeout_s=timeout_s,
            attempts=attempts,
        )

    def history(self, topic: str) -> SchemaHistory | None:
        """See `offload_hooks.schemas.SchemaProvider`."""
        name = parse_topic(topic).base.removeprefix("persistent://")
        path = f"/admin/v2/schemas/{'/'.join(quote(part, safe='') for part in name.split('/', 2))}/schemas"
        answer = self._client.get_json(path)
        if answer is None or answer == {"getSchemaResponses": []}:
            return None
        with placed(key=path):
            return history_from_rest(answer)

    def close(self) -> None:
        """Give back the connections."""
        self._client.close()
