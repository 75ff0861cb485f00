"""Layer that tries again what failed for a moment."""

from offload_layers.retry.layer import RetryLayer

__all__ = ["RetryLayer"]
