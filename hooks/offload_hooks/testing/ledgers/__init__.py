"""What a ledger store is tried with: the conformance suite's cases, and a store in memory."""
