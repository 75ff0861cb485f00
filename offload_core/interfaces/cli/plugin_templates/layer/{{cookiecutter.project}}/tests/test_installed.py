"""The layer is found by its name, and stands over a tier."""

import pytest
from pulsar_offload import OptionError, open_store


def test_it_logs_what_takes_long(tmp_path, caplog):
    with open_store(tmp_path, layers=["{{ cookiecutter.name }}:slower_than_s=0"]) as store:
        store.write_index("a/key", b"0123456789")
        assert bytes(store.read_range("a/key", 3, 4)) == b"3456"
    assert [record.getMessage().partition(" took ")[0] for record in caplog.records] == [
        "write_index of a/key",
        "read_range of a/key",
    ]


def test_it_is_quiet_by_default(tmp_path, caplog):
    with open_store(tmp_path, layers=["{{ cookiecutter.name }}"]) as store:
        store.write_index("a/key", b"0123456789")
    assert not caplog.records


def test_an_option_that_it_does_not_have_is_refused(tmp_path):
    with pytest.raises(OptionError, match="slower_than_s"):
        open_store(tmp_path, layers=["{{ cookiecutter.name }}:slower=1"])
