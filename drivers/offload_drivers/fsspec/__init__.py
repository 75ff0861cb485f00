"""The driver `fsspec`: a tier in any file system that fsspec knows, by its protocol."""

from offload_drivers.fsspec.driver import CAPABILITIES, FsspecDriver

__all__ = ["CAPABILITIES", "FsspecDriver"]
