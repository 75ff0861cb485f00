"""Compiled loops from entries to message columns; `offload_core.format.messages.entry` is their plain oracle."""
