"""The driver `s3` passes the suite; with obstore, which only reads, the cases that read."""

from __future__ import annotations

import pytest

from offload_drivers.s3 import S3Driver
from offload_hooks.testing import DriverConformance
from offload_hooks.testing.cases.processes import ProcessCases
from offload_hooks.testing.cases.reading import ReadingCases


class OnVersitygw:
    """A bucket for each case."""

    own_keys = (".offload-uploads/x",)
    secrets = ("root-secret-key",)
    client = "s3fs"

    @pytest.fixture
    def make_driver(self, given):
        return lambda: S3Driver(**given, client=self.client)

    @pytest.fixture
    def back_door(self, boto):
        return boto


class TestS3(OnVersitygw, DriverConformance):
    pass


@pytest.mark.sampled(3)
class TestS3WithObstore(OnVersitygw, ProcessCases, ReadingCases):
    client = "obstore"
