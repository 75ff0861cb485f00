"""Versions on Spark's driver and its executors: what is compared, and that it is before anything is unpickled."""

import logging
import pickle
import platform
from importlib.metadata import version

import pytest

from offload_core.interfaces.engines.spark.executor import _call
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.interfaces.engines.spark.task_reader import _restored
from offload_core.interfaces.engines.spark.versions import check_versions, installed_versions
from offload_hooks.errors import VersionMismatchError

NOT_A_PICKLE = b"nothing that can be unpickled"


@pytest.fixture
def versions():
    return installed_versions("local")


def test_what_reading_needs_is_compared(versions):
    assert versions["Python"] == ".".join(platform.python_version_tuple()[:2])
    assert {name: version(name) for name in versions if name != "Python"} == {
        name: found for name, found in versions.items() if name != "Python"
    }
    assert set(versions) == {"Python", "pulsar-offload", "numba", "numpy", "pyarrow", "pyspark"}


def test_a_drivers_libraries_are_among_it():
    assert installed_versions("s3")["s3fs"] == version("s3fs")
    assert "gcsfs" not in installed_versions("s3")


def test_the_same_versions_pass_without_a_word(versions, caplog):
    check_versions(versions)
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "there"),
    [("Python", "3.10"), ("pulsar-offload", "0.0.1"), ("numpy", "1.26.4"), ("pyspark", "3.5.1")],
)
def test_what_cannot_work_is_an_error_that_names_both_before_anything_is_unpickled(versions, name, there):
    with pytest.raises(VersionMismatchError) as raised:
        _restored(versions | {name: there}, NOT_A_PICKLE)
    assert raised.value.expected == f"{name} {there}"
    assert raised.value.found == f"{name} {versions[name]}"
    assert "PYSPARK_PYTHON" in str(raised.value)


def test_an_exports_work_is_compared_too(versions):
    answer = _call(versions | {"pulsar-offload": "0.0.1"}, NOT_A_PICKLE, NOT_A_PICKLE)
    assert isinstance(answer.error, VersionMismatchError)


def test_other_differences_are_a_warning_once(versions, caplog):
    other = versions | {"pyarrow": "18.0.0", "s3fs": "2020.1", "no-such-thing": "1.0"}
    with caplog.at_level(logging.WARNING):
        check_versions(other)
        check_versions(dict(other))
    (record,) = caplog.records
    for part in (
        f"pyarrow {version('pyarrow')} (driver: 18.0.0)",
        f"s3fs {version('s3fs')} (driver: 2020.1)",
        "no-such-thing not installed (driver: 1.0)",
    ):
        assert part in record.getMessage()


@pytest.mark.parametrize("kind", ["reader", "streamReader"])
def test_a_reader_compares_when_it_is_unpickled(tmp_path, monkeypatch, kind):
    source = PulsarOffloadDataSource({"path": str(tmp_path)})
    pickled = pickle.dumps(getattr(source, kind)(source.schema()))
    assert pickle.loads(pickled) is not None
    ours = version("pulsar-offload").encode()
    changed = pickled.replace(ours, b"9" + ours[1:])
    assert changed != pickled
    with pytest.raises(VersionMismatchError, match=r"pulsar-offload 9\."):
        pickle.loads(changed)
