"""Layer that limits bytes and requests per second."""

from offload_layers.rate_limit.layer import RateLimitLayer

__all__ = ["RateLimitLayer"]
