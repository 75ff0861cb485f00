"""Layers over any driver: retries, limits, metrics, tracing, caching and hedging."""
