"""Driver for HDFS."""

from offload_drivers.hdfs.driver import CAPABILITIES, HdfsDriver

__all__ = ["CAPABILITIES", "HdfsDriver"]
