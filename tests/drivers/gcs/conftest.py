"""What tests of the driver `gcs` share: a bucket of their own, another client of it, a server in front, a driver."""

from __future__ import annotations

import pytest
from gcs import Rest, new_bucket, opened
from network.fronts import Front


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


@pytest.fixture
def driver(options):
    """By the options of the test's file."""
    with opened(**options) as driver:
        yield driver
