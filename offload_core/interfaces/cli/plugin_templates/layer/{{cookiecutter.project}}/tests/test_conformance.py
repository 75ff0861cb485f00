"""A driver under the layer passes the suite that every driver must pass."""

import pytest
from offload_hooks.testing import LayerConformance

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}


class Test{{ cookiecutter.plugin }}(LayerConformance):
    # Try it with options under which it does something.
    @pytest.fixture
    def make_layer(self):
        return lambda rest: {{ cookiecutter.plugin }}(rest, slower_than_s="0")
