"""The shelf passes the conformance suite of pulsar-offload."""

from datetime import UTC, datetime

import pytest
from offload_shelf import ShelfDriver

from offload_hooks import ObjectStat
from offload_hooks.testing import DriverConformance


class Behind:
    """The shelf's objects, without its hooks."""

    def __init__(self, driver):
        self.objects = driver._objects

    def put(self, key, data, user_metadata, content_type):
        about = {"content_type": content_type, "user_metadata": dict(user_metadata)}
        stat = ObjectStat(key=key, size_bytes=len(data), modified_at=datetime.now(UTC), **about)
        self.objects[key] = (stat, data)

    def get(self, key):
        return self.objects[key][1] if key in self.objects else None

    def keys(self):
        return set(self.objects)


class TestShelf(DriverConformance):
    """All that the hooks promise."""

    @pytest.fixture
    def make_driver(self):
        driver = ShelfDriver()
        return lambda: driver  # the same one each time: no other can see what is on its shelf

    @pytest.fixture
    def back_door(self, make_driver):
        return Behind(make_driver())
