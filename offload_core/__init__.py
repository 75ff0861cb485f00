"""Read, write and look after Apache Pulsar's tiered storage, without a broker."""

from offload_core.api import TierReader, open_tier

__version__ = "0.2.0"
__all__ = ["TierReader", "__version__", "open_tier"]
