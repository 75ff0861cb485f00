"""Read, write and look after Apache Pulsar's tiered storage."""

__version__ = "0.1.0"
