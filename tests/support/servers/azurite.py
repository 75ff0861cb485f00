"""Azurite: Azure's blob service, with the one account whose key Azurite publishes for development."""

from __future__ import annotations

from servers import install
from servers.server import Server


class Azurite(Server):
    """A blob service. Only one made with `on_disk=True` has its data after a restart.

    It writes its tables every five seconds and when it is stopped: `kill` loses what came after the last time.
    """

    name = "azurite"
    part = "azure"
    client = "adlfs"
    account_name = "devstoreaccount1"
    account_key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, *, on_disk: bool = False) -> None:
        super().__init__()
        self.on_disk = on_disk

    def command(self) -> list[str]:
        node, script = install.azurite()
        store = ["--location", str(self.folder / "blobs")] if self.on_disk else ["--inMemoryPersistence"]
        address = ["--blobHost", self.host, "--blobPort", str(self.port)]
        flags = ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        return [str(node), str(script), *address, *flags, *store]

    @property
    def account_url(self) -> str:
        """The URL under which the account's containers are."""
        return f"{self.endpoint}/{self.account_name}"

    @property
    def connection_string(self) -> str:
        """The connection string of the account."""
        account = f"AccountName={self.account_name};AccountKey={self.account_key}"
        return f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={self.account_url};"

    def make_container(self, container: str) -> str:
        """Make an empty container and return its name. Needs the extra `azure`."""
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(self.connection_string) as service:
            service.create_container(container).close()
        return container
