"""Driver for Google Cloud Storage."""

from offload_drivers.gcs.driver import CAPABILITIES, GcsDriver

__all__ = ["CAPABILITIES", "GcsDriver"]
