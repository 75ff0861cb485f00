"""What tests of the driver `azure` share: a container as the SDK's client of it, drivers of it, a server in front."""

from __future__ import annotations

import uuid

import pytest
from azure.storage.blob import BlobServiceClient
from network.fronts import Front

from offload_drivers.azure import AzureDriver


@pytest.fixture
def container(azurite):
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
        yield service.get_container_client(azurite.make_container(f"tier-{uuid.uuid4().hex}"))


@pytest.fixture
def front(azurite):
    with Front(azurite.account_url) as front:
        yield front


@pytest.fixture
def open_driver(container):
    """Makes drivers of the container, unless another one is named, and closes them in the end."""
    opened = []

    def open_one(**options):
        opened.append(AzureDriver(**{"container": container.container_name} | options))
        return opened[-1]

    yield open_one
    for driver in opened:
        driver.close()


@pytest.fixture
def fronted(azurite, front, open_driver):
    """A driver whose requests go through the front."""
    return open_driver(connection_string=azurite.connection_string, endpoint_url=front.url)
