"""Know topics and their ledgers: records, the stores that keep them, catalogues, policies."""
