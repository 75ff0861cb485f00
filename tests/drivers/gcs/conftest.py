"""What tests of the driver `gcs` share: a bucket of their own, another client of it, servers in front, a driver."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from gcs import Google, Rest, new_bucket, opened
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
def google(fake_gcs):
    """The server, and those of Google's that give tokens."""
    with Google(fake_gcs) as google:
        yield google


@pytest.fixture(scope="session")
def private_key():
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def key(google, private_key):
    """A service account's key, as text."""
    return google.service_account_key(private_key)


@pytest.fixture
def driver(options):
    """By the options of the test's file."""
    with opened(**options) as driver:
        yield driver
