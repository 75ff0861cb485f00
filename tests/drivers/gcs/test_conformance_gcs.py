"""The driver `gcs` passes the suite."""

from __future__ import annotations

import pytest
from gcs import PREFIX

from offload_drivers.gcs import GcsDriver
from offload_hooks.testing import DriverConformance


@pytest.mark.sampled(6)
class TestGcs(DriverConformance):
    own_keys = (".offload-uploads/x",)
    secrets = ("ya29.a-secret-token",)

    @pytest.fixture
    def make_driver(self, fake_gcs, bucket):
        return lambda: GcsDriver(
            bucket=bucket, prefix=PREFIX, endpoint_url=fake_gcs.endpoint, token=self.secrets[0]
        )

    @pytest.fixture
    def back_door(self, rest):
        return rest
