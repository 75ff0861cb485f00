"""Pulsar entries to message columns."""
