"""The cases of the conformance suite of ledger stores, by theme."""
