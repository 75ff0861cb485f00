"""BookKeeper's bytes: a ledger's description in ZooKeeper, the frames of a bookie's protocol, and stored entries."""
