"""Empty places that both Pulsar's offloader and ours can use: a folder, and a whole bucket (Pulsar knows no prefix)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stores import new_store


@pytest.fixture
def folder(request, tmp_path):
    """A folder."""
    return new_store("local", request.getfixturevalue, tmp_path)


@pytest.fixture
def bucket(request, tmp_path):
    """A bucket on a real S3 server, without a prefix."""
    made = new_store("s3", request.getfixturevalue, tmp_path)
    return replace(made, url=made.url.removesuffix("/tier"))
