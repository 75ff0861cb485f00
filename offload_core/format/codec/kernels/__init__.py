"""Compiled loops over byte arrays; each has a reference implementation in plain Python."""
