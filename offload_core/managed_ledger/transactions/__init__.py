"""Transactions of managed ledgers: followed, settled by anybody, and what offload filters make of them."""
