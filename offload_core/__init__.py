"""Read, write and look after Apache Pulsar's tiered storage, without a broker."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offload_core.api import TierReader, open_tier

__version__ = "0.2.0"
__all__ = ["TierReader", "__version__", "open_tier"]


def __getattr__(name: str) -> Any:
    """The reader and what opens it are imported when they are asked for: not every process reads."""
    if name in __all__:
        return getattr(import_module("offload_core.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
