"""Empty places that both Pulsar's offloader and ours can use: a folder, and a whole bucket (Pulsar knows no prefix)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stores import Store, new_store


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A folder."""
    return new_store("local", request.getfixturevalue, tmp_path)


@pytest.fixture
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A bucket on a real S3 server, without a prefix."""
    made = new_store("s3", request.getfixturevalue, tmp_path)
    return replace(made, url=made.url.removesuffix("/tier"))
