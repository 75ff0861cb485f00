"""No power fails in these tests: what a disk keeps is tested with the driver."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)
