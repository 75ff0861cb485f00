"""Recorded sessions of the command `offload` (`docs/gallery`): their commands run on a terminal when pages are made."""
