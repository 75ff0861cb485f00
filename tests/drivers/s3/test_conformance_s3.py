"""The driver `s3` passes the suite."""

from __future__ import annotations

import pytest

from offload_drivers.s3 import S3Driver
from offload_hooks.testing import DriverConformance


class TestS3(DriverConformance):
    """On a bucket for each case."""

    own_keys = (".offload-uploads/x",)
    secrets = ("root-secret-key",)

    @pytest.fixture
    def make_driver(self, given):
        return lambda: S3Driver(**given)

    @pytest.fixture
    def back_door(self, boto):
        return boto
