"""The REST service: Pulsar's own admin paths for what we have. It takes no decisions of its own."""

from offload_core.interfaces.service.server import serve

__all__ = ["serve"]
