"""Turn entries into message columns, and messages into entries."""
