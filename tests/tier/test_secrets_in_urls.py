"""A URL with a credential is refused, or used, by each parser of URLs; what is shown of it never has the credential."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from commands import Offload, in_this_process

from offload_core.interfaces.engines.spark.source_options import parse_options
from offload_core.metadata.stores import open_metadata_store
from offload_core.reading.export import open_target
from offload_hooks.errors import OffloadError
from pulsar_offload import open_tier, scan

SECRET = "pl4nted"
FORMS = (
    "{scheme}://user:SECRET@127.0.0.1/x",
    "{scheme}://SECRET@127.0.0.1/x",
    "{scheme}:user:SECRET@127.0.0.1/x",
    "{scheme}://user:SECRET@[bad/x",
    "{scheme}://user:SECRET@127.0.0.1:port/x",
    "{scheme}://user:SECRET@host\u2100/x",
    "{scheme}://user:a/SECRET@127.0.0.1/x",
    "{scheme}://user:a?SECRET@127.0.0.1",
    "{scheme}://us er:SECRET@127.0.0.1/x",
    "{scheme}://127.0.0.1,user:SECRET@127.0.0.1/x",
    "{scheme}:///x?user:SECRET@127.0.0.1#SECRET",
)
SCHEMES = sorted(
    {
        each.name
        for group in ("pulsar_offload.url_schemes", "pulsar_offload.metadata_stores")
        for each in entry_points(group=group)
    }
    | {"iceberg", "nosuch", "fsspec+file", "fsspec+sftp"}
)
URLS = [form.format(scheme=scheme).replace("SECRET", SECRET) for scheme in SCHEMES for form in FORMS]


def as_tier(url, tier):
    with open_tier(url) as opened:
        assert SECRET not in repr(opened) + repr(opened.store) + repr(opened.store.describe())
        opened.catalogue()


def as_records(url, tier):
    with open_tier(tier) as opened:
        opened.catalogue(records=url)


def as_metadata_store(url, tier):
    open_metadata_store(url, {}).close()


def as_target(url, tier):
    target = open_target(url, {})
    assert SECRET not in repr(target)
    target.load()


def as_schemas(url, tier):
    with open_tier(tier) as opened:
        scan(opened, "t/n/a", schemas=url)


def as_pulsar_s_file_system(url, tier):
    open_tier("filesystem", fileSystemURI=url).close()


def as_option(driver, option):
    def use(url, tier):
        with open_tier(driver, **{option: url}) as opened:
            assert SECRET not in repr(opened) + repr(opened.store) + repr(opened.store.describe())

    return use


USES: dict[str, Callable[[str, Path], None]] = {
    "tier": as_tier,
    "records": as_records,
    "metadata store": as_metadata_store,
    "target": as_target,
    "schemas": as_schemas,
    "filesystem": as_pulsar_s_file_system,
} | {
    f"{driver} {option}": as_option(driver, option)
    for driver in ("s3://bucket", "gs://bucket", "az://container")
    for option in ("endpoint_url", "proxy")
}


@pytest.mark.long
@pytest.mark.parametrize("use", USES)
def test_nothing_that_is_shown_of_a_url_has_its_credential(use, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    tier = tmp_path / "tier"
    tier.mkdir()
    monkeypatch.chdir(tmp_path)
    refused = 0
    for url in URLS:
        try:
            USES[use](url, tier)
        except (OffloadError, AssertionError) as error:
            refused += 1
            shown = "".join(traceback.format_exception(error)) + repr(error)
            assert SECRET not in shown, url
    assert refused > len(URLS) // 4
    assert SECRET not in caplog.text
    assert [path for path in tmp_path.rglob("*") if SECRET in str(path)] == []


@pytest.mark.long
def test_the_service_s_log_has_no_credential_of_a_url():
    program = f"""
import logging
from offload_core.interfaces.service import server as serving
serving._log_as_json()
url = "http://user:{SECRET}@host"
serving.log.warning("failed", error=url)
logging.getLogger("library").warning("cannot reach %s", url)
try:
    raise OSError(url)
except OSError:
    logging.getLogger("library").exception("failed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("http://********@host") >= 3
    assert SECRET not in done.stderr


def test_options_of_spark_show_no_credential_of_a_url():
    for name in ("path", "tiers", "records", "schemas", "storage.endpoint_url"):
        options = parse_options({"topic": "t/n/a", "path": "/x", name: f"s3://user:{SECRET}@host"})
        assert SECRET not in repr(options)


@pytest.mark.parametrize("url", [url for url in URLS if url.split(":")[0] in ("file", "sqlite", "s3", "zk")])
def test_the_command_line_shows_no_credential_of_a_url_also_with_the_whole_trace(
    url, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    offload = in_this_process(capsys, monkeypatch)
    for arguments in (("ls", url), ("ls", tmp_path, "--records", url), ("doctor", url, "--read-only")):
        result = offload(*arguments, "--debug")
        assert result.code in (1, 2)
        assert SECRET not in result.out + result.err


def test_an_error_of_another_library_is_shown_by_the_command_line_without_credentials(
    tmp_path, capsys, monkeypatch
):
    def failing(*arguments, **options):
        raise OSError(f"cannot connect to http://user:{SECRET}@host")

    monkeypatch.setattr("offload_core.interfaces.cli.command_options.open_tier", failing)
    offload = in_this_process(capsys, monkeypatch)
    for options in ((), ("--debug",)):
        result = offload("ls", tmp_path, *options)
        assert "http://********@host" in result.err
        assert SECRET not in result.err


def test_the_configuration_shows_no_credential_of_a_url(tmp_path, capsys, monkeypatch):
    config = tmp_path / "offload.toml"
    config.write_text(f'[metadata]\nurl = "zk:user:{SECRET}@127.0.0.1"\n')
    offload: Offload = in_this_process(capsys, monkeypatch)
    for options in ((), ("--json",)):
        result = offload("config", "show", "--config", config, *options)
        assert result.code == 0
        assert "zk:********@127.0.0.1" in result.out
        assert SECRET not in result.out + result.err
