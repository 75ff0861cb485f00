"""Compiled loops over the frames that bookies send; each has a reference implementation in plain Python."""
