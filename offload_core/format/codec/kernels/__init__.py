"""Compiled loops over byte arrays; each has a plain Python twin that is its oracle."""
