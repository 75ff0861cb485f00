"""Compiled loops over payloads; each has a reference implementation (docs/adr/0009-avro.md)."""
