"""Compiled loops over payloads; each has a plain twin (docs/adr/0009-avro.md)."""
