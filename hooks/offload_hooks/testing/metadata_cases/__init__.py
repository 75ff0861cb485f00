"""The cases of the conformance suite of metadata stores, by theme."""
