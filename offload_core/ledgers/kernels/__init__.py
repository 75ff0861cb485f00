"""Compiled loops over the frames of ledger files; each has a plain Python twin that is its oracle."""
