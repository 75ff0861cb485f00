"""Pulsar's filesystem offloader: a ledger as a Hadoop MapFile. Source: docs/formats/mapfile.md."""
