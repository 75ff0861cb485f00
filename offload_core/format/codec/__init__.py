"""Parse and pack the objects of tiered storage: PIP-17, streaming, MapFile."""
