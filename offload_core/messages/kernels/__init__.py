"""Compiled loops from entries to message columns; `offload_core.messages.entry` is their plain oracle."""
