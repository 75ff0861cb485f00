"""A client of a Pulsar broker's admin REST."""

from offload_core.pulsar_admin.admin_client import (
    MAX_ANSWER_BYTES,
    AdminPlugin,
    Credentials,
    PulsarAdminClient,
    parse_servers,
)

__all__ = ["MAX_ANSWER_BYTES", "AdminPlugin", "Credentials", "PulsarAdminClient", "parse_servers"]
