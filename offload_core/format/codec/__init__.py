"""Bytes to values and back, for the objects of Pulsar's tiered storage; no I/O."""
