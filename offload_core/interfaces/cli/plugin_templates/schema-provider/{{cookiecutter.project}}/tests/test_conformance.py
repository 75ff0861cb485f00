"""The provider passes the suite that every schema provider must pass."""

import pytest
from offload_hooks.schemas import SchemaHistory, SchemaVersion
from offload_hooks.testing import SchemaProviderConformance

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


class Test{{ cookiecutter.plugin }}(SchemaProviderConformance):
    @pytest.fixture
    def make_provider(self):
        return {{ cookiecutter.plugin }}

    # Fill your registry here, by another way than your provider.
    @pytest.fixture
    def options(self, tmp_path):
        (tmp_path / "acme%2Fcold%2Forders.avsc").write_text(ORDER)
        return {"directory": str(tmp_path)}

    # What it must answer then.
    @pytest.fixture
    def histories(self):
        version = SchemaVersion(version=0, type="AVRO", definition=ORDER)
        return {"persistent://acme/cold/orders": SchemaHistory(versions=(version,), stands_for_all=True)}

    # A topic whose schema is damaged, and a registry that does not answer.
    @pytest.fixture
    def malformed(self, options, tmp_path):
        (tmp_path / "acme%2Fcold%2Fdamaged.avsc").write_text("{")
        return options, "persistent://acme/cold/damaged"

    @pytest.fixture
    def unreachable(self, tmp_path):
        return {"directory": str(tmp_path / "missing")}
