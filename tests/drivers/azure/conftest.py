"""What tests of the driver `azure` share: a container of their own, as the SDK's client of it."""

from __future__ import annotations

import uuid

import pytest
from azure.storage.blob import BlobServiceClient


@pytest.fixture
def container(azurite):
    with BlobServiceClient.from_connection_string(azurite.connection_string) as service:
        yield service.get_container_client(azurite.make_container(f"tier-{uuid.uuid4().hex}"))
