"""The conformance suite on Azurite; the back door is the SDK's own synchronous client."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.blob import ContentSettings
from servers.azurite import Azurite

from offload_drivers.azure import AzureDriver, listing
from offload_hooks.testing import DriverConformance

PREFIX = "cold/tier"


class AzureBackDoor:
    """A container below a prefix."""

    def __init__(self, container):
        self._container = container

    def put(self, key, data, user_metadata, content_type):
        self._container.upload_blob(
            f"{PREFIX}/{key}",
            data,
            metadata=dict(user_metadata),
            content_settings=ContentSettings(content_type=content_type),
            overwrite=True,
        )

    def get(self, key):
        try:
            return self._container.download_blob(f"{PREFIX}/{key}").readall()
        except ResourceNotFoundError:
            return None

    def keys(self):
        names = self._container.list_blob_names(name_starts_with=f"{PREFIX}/")
        return {name.removeprefix(f"{PREFIX}/") for name in names}

    def part_sizes(self, key):
        committed, _ = self._container.get_blob_client(f"{PREFIX}/{key}").get_block_list("committed")
        return [block.size for block in committed]


@pytest.mark.sampled(6)
class TestAzure(DriverConformance):
    secrets = (Azurite.account_key,)
    own_keys = (".offload-uploads/x", ".offload-uploads")
    many_keys = 350

    @pytest.fixture(autouse=True)
    def small_pages(self, monkeypatch):
        """A page of Azure's has 5000 names, which take Azurite minutes to make."""
        monkeypatch.setattr(listing, "PAGE_BLOBS", 100)

    @pytest.fixture
    def make_driver(self, azurite, container):
        name, string = container.container_name, azurite.connection_string
        return lambda: AzureDriver(container=name, prefix=PREFIX, connection_string=string)

    @pytest.fixture
    def back_door(self, container):
        return AzureBackDoor(container)
