"""A client of a Pulsar broker's admin REST."""

from offload_core.pulsar_admin.client import MAX_ANSWER_BYTES, PulsarAdminClient
from offload_core.pulsar_admin.plugin import AdminPlugin
from offload_core.pulsar_admin.servers import Credentials, parse_servers

__all__ = ["MAX_ANSWER_BYTES", "AdminPlugin", "Credentials", "PulsarAdminClient", "parse_servers"]
