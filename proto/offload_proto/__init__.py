"""Pulsar's and BookKeeper's stored records as protobuf messages; `make proto` generates the modules."""
