"""Driver for Azure Blob Storage."""

from offload_drivers.azure.driver import CAPABILITIES, AzureDriver

__all__ = ["CAPABILITIES", "AzureDriver"]
