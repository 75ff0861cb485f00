"""What tests of the driver `gcs` share: a bucket of their own, another client of it, and a server in front."""

from __future__ import annotations

import pytest
from gcs import Rest, new_bucket
from http_front import Front


@pytest.fixture
def bucket(fake_gcs):
    return new_bucket(fake_gcs)


@pytest.fixture
def rest(fake_gcs, bucket):
    return Rest(fake_gcs, bucket)


@pytest.fixture
def front(fake_gcs):
    with Front(fake_gcs.endpoint) as front:
        yield front
