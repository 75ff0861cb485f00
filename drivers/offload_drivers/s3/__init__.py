"""Driver for S3 and stores that speak its protocol."""

from offload_drivers.s3.driver import CAPABILITIES, S3Driver

__all__ = ["CAPABILITIES", "S3Driver"]
