"""What tests of the driver `s3` share: a bucket of their own, another client of it, and a server in front."""

from __future__ import annotations

import os

import pytest
from network.fronts import Front
from s3 import PREFIX, Boto, new_bucket, opened, options


@pytest.fixture(autouse=True)
def no_aws_settings(monkeypatch, tmp_path):
    """A machine without settings and credentials for S3."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def bucket(versitygw):
    return new_bucket(versitygw)


@pytest.fixture
def given(versitygw, bucket):
    return options(versitygw, bucket=bucket, prefix=PREFIX)


@pytest.fixture
def boto(versitygw, bucket):
    boto = Boto(versitygw, bucket)
    yield boto
    boto.close()


@pytest.fixture
def front(versitygw):
    with Front(versitygw.endpoint) as front:
        yield front


@pytest.fixture
def driver(given):
    with opened(**given) as driver:
        yield driver


@pytest.fixture
def fronted(given, front):
    """A driver whose requests are seen."""
    with opened(**given | {"endpoint_url": front.url}) as driver:
        yield driver
