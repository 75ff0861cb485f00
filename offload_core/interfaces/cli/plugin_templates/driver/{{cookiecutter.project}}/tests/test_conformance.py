"""The driver passes the suite that every driver must pass."""

import json
from urllib.parse import quote, unquote

import pytest
from offload_hooks.testing import DriverConformance

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}


class BackDoor:
    """The same tier, reached without the driver: by the store's own command or client, once it is yours.

    It checks the driver: an object that the driver wrote must be found without the driver.
    """

    def __init__(self, root):
        self._root = root

    def put(self, key, data, user_metadata, content_type):
        self._root.mkdir(exist_ok=True)
        head = json.dumps({"content_type": content_type, "user_metadata": dict(user_metadata)}).encode()
        self._path(key).write_bytes(head + b"\n" + data)

    def get(self, key):
        path = self._path(key)
        return path.read_bytes().partition(b"\n")[2] if path.exists() else None

    def keys(self):
        return {unquote(path.name).removesuffix(".object") for path in self._root.glob("*")}

    def _path(self, key):
        return self._root / f"{quote(key, safe='')}.object"


class Test{{ cookiecutter.plugin }}(DriverConformance):
    @pytest.fixture
    def make_driver(self, tmp_path):
        return lambda: {{ cookiecutter.plugin }}(root=str(tmp_path / "tier"))

    @pytest.fixture
    def back_door(self, tmp_path):
        return BackDoor(tmp_path / "tier")
