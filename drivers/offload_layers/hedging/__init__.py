"""Layer that asks twice when a range is slow."""

from offload_layers.hedging.layer import HedgingLayer

__all__ = ["HedgingLayer"]
