"""Streaming offload of managed ledgers (PIP-76): entries go to segment after segment as they are appended."""
