"""Parse and pack bytes: the objects of tiered storage (PIP-17, streaming, MapFile), BookKeeper's frames."""
