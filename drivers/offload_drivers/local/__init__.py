"""Driver for a folder of this machine."""

from offload_drivers.local.driver import CAPABILITIES, LocalDriver

__all__ = ["CAPABILITIES", "LocalDriver"]
