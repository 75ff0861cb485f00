"""An offload filter by a third party: see `filter`."""

from offload_property_filter.filter import PropertyFilter

__all__ = ["PropertyFilter"]
