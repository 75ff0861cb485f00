"""The cases of the conformance suite, by theme."""
