"""Topics' schemas from a broker's admin REST. Apart from the other providers, since its client's libraries load slowly.

Source: docs/schemas.md, "Who knows the schemas".
"""

from __future__ import annotations

from urllib.parse import quote

from offload_core.format.schemas.schema_history import history_from_rest
from offload_core.metadata.catalogue import parse_topic
from offload_core.storage.pulsar_admin import AdminPlugin
from offload_hooks.errors import placed
from offload_hooks.schemas import SchemaHistory


class AdminSchemas(AdminPlugin):
    """The schema provider `admin`; its options are those of `AdminPlugin`."""

    def history(self, topic: str) -> SchemaHistory | None:
        """See `offload_hooks.schemas.SchemaProvider`."""
        name = parse_topic(topic).base.removeprefix("persistent://")
        path = f"/admin/v2/schemas/{'/'.join(quote(part, safe='') for part in name.split('/', 2))}/schemas"
        answer = self._client.get_json(path)
        if answer is None or answer == {"getSchemaResponses": []}:
            return None
        with placed(key=path):
            return history_from_rest(answer)
