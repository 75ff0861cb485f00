"""The store passes the suite that every metadata store must pass."""

import pytest
from offload_hooks.testing import MetadataStoreConformance

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}


class Test{{ cookiecutter.plugin }}(MetadataStoreConformance):
    # What opens the store, each time the same one, which is empty at first. Use a real server of yours.
    @pytest.fixture
    def make_store(self, tmp_path):
        url = f"{{ cookiecutter.name }}:{tmp_path}/records.db"
        return lambda: {{ cookiecutter.plugin }}(url)
