"""Without an engine's library the error names the extra that installs it."""

import sys

import pytest

import pulsar_offload
from offload_hooks.errors import MissingExtraError


@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("polars", "scan_polars"),
        ("dask", "read_dask"),
        ("ray", "read_ray"),
        ("ray", "OffloadedDatasource"),
        ("daft", "read_daft"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(library, name, tmp_path, monkeypatch):
    monkeypatch.setattr("offload_core.reading.scan.scanning.find_spec", lambda _: None)
    monkeypatch.delitem(sys.modules, "offload_core.interfaces.engines.ray_source", raising=False)
    monkeypatch.delitem(vars(pulsar_offload), name, raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'pulsar-offload\[{library}\]'"):
        getattr(pulsar_offload, name)(tmp_path)
