"""Serve Pulsar's own admin REST paths, and take no decisions."""

from offload_core.interfaces.service.server import serve

__all__ = ["serve"]
