"""Tiers by name in commands and engines, from the user's file."""

import polars as pl
import pytest

from pulsar_offload import scan_polars


@pytest.fixture
def named(broker, tmp_path, monkeypatch):
    """A file of tiers, whose `prod` is a broker's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "pulsar-offload.toml"
    path.write_text(f'[tiers]\nprod.url = "{broker}"\narchive.url = "{tmp_path}/archive"\n')
    return path


def test_a_command_takes_a_name_for_a_tier(offload, named, broker):
    by_path = offload("ls", broker)
    assert by_path.code == 0
    assert offload("ls", "prod") == by_path
    assert offload("history", "prod", "acme/cold/txn") == offload("history", broker, "acme/cold/txn")


def test_a_name_is_a_second_place_too(offload, named, tmp_path):
    moved = offload(
        "relocate", "prod", "--to", "archive", "--topic", "acme/cold/txn", "--yes",
        *("--audit-log", tmp_path / "log"),
    )  # fmt: skip
    assert moved.code == 0, moved.err
    assert "acme/cold/txn" in offload("ls", "archive").out
    assert "acme/cold/txn" in offload("ls", tmp_path / "archive").out


def test_an_unknown_name_lists_those_that_there_are(offload, named):
    result = offload("ls", "prd")
    assert result.code == 2
    shown = " ".join(result.err.split())
    assert "no driver or tier of this name. Did you mean the tier 'prod'? Tiers: archive, prod." in shown


def test_a_wrong_file_is_named_with_the_field(offload, named):
    named.write_text('tiers.prod.uri = "s3://a"')
    result = offload("ls", "prod")
    shown = " ".join(result.err.split())
    assert result.code == 2
    assert f"the file of tiers is wrong at tiers.prod.uri: there is no such field ({named})" in shown


def test_an_engine_takes_a_name_and_storage_options(named, broker):
    count = pl.len()
    by_path = scan_polars(broker, "acme/cold/txn").select(count).collect().item()
    assert by_path > 0
    assert scan_polars("prod", "acme/cold/txn", storage_options={}).select(count).collect().item() == by_path
    place = {"root": str(broker)}
    assert (
        scan_polars("local", "acme/cold/txn", storage_options=place).select(count).collect().item() == by_path
    )
