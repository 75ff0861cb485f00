"""An example of a store driver by a third party: a tier in memory."""

from offload_shelf.driver import ShelfDriver

__all__ = ["ShelfDriver"]
