"""What doctor says of files that other users can read or write: only of these, with the command that ends it."""

import os
import shlex
import subprocess

import pytest
from commands import Offload, configuration_file, in_this_process, opened_topic

from offload_core.maintenance.doctor.exposure import exposure, private_places
from offload_core.writing.configuration import load_configuration


@pytest.fixture
def config(tmp_path):
    tmp_path.chmod(0o755)
    file = configuration_file(tmp_path)
    (tmp_path / "token").write_text("secret")
    (tmp_path / "key.pem").write_text("secret")
    (tmp_path / "key.pem").chmod(0o600)
    (tmp_path / "token").chmod(0o600)
    file.write_text(f'{file.read_text()}[service]\ntls_key = "{tmp_path}/key.pem"\n')
    with opened_topic(file, "acme/n/persistent/orders") as (_, topic):
        topic.add_entry(b"x")
    (tmp_path / "audit.jsonl").touch(0o600)
    (tmp_path / "cold").mkdir(0o755, exist_ok=True)
    return file


def looked_at(config):
    return exposure(private_places(load_configuration(config), config))


def test_what_this_program_creates_is_private(config):
    assert looked_at(config).status == "ok"


@pytest.mark.parametrize(
    ("name", "mode", "noun"),
    [
        ("records.db", 0o644, "the metadata database"),
        ("records.db", 0o660, "the metadata database"),
        ("hot", 0o755, "the hot tier"),
        ("audit.jsonl", 0o640, "the audit log"),
        ("key.pem", 0o644, "the TLS key"),
        ("cold", 0o777, "the tier"),
    ],
)
def test_a_place_that_others_can_get_at_is_named_with_the_command_that_ends_it(config, name, mode, noun):
    path = config.parent / name
    path.chmod(mode)
    found = looked_at(config)
    assert found.status == "warning"
    assert f"{noun} {path}" in found.seen
    for command in found.fix.removeprefix("Run: ").split("; "):
        subprocess.run(shlex.split(command), check=True)
    assert looked_at(config).status == "ok"
    assert path.exists()


def test_what_sqlite_left_beside_the_database_and_single_ledgers_are_looked_at(config):
    (config.parent / "records.db-wal").touch(0o644)
    ledger = next((config.parent / "hot").glob("*.ledger"))
    ledger.chmod(0o644)
    (config.parent / "hot").chmod(0o711)
    seen = looked_at(config).seen
    assert "records.db-wal" in seen
    assert str(ledger) in seen


def test_a_file_in_a_folder_that_lets_nobody_in_is_private(config):
    (config.parent / "records.db").chmod(0o666)
    config.parent.chmod(0o700)
    assert looked_at(config).status == "ok"


def test_a_folder_that_others_can_write_lets_them_replace_what_is_in_it(config):
    config.parent.chmod(0o777)
    found = looked_at(config)
    assert f"the folder of the metadata database {config.parent}" in found.seen
    config.parent.chmod(0o1777)
    assert looked_at(config).status == "ok"


@pytest.mark.parametrize(
    ("more", "is_secret"),
    [
        ("", False),
        ('[service.tokens]\nsecret_key = "c2VjcmV0c2VjcmV0"\n', True),
        ('[[tiers]]\ndriver = "s3"\noptions.secret_access_key = "secret"\n', True),
        ('[[tiers]]\ndriver = "s3"\noptions.region = "eu"\n', False),
        ('[[tiers]]\ndriver = "x"\noptions.token_file = "{folder}/token"\n', False),
        ('[live]\nadmin_options.token = "secret"\n', True),
        ('[live]\noptions.digest = "user:secret"\n', True),
        ('[live]\nbookkeeper.sasl_password = "secret"\n', True),
        ('[live]\nadmin_options.token_file = "{folder}/token"\n', False),
    ],
)
def test_a_configuration_is_private_if_it_holds_secrets(config, more, is_secret):
    config.write_text(config.read_text() + more.replace("{folder}", str(config.parent)))
    config.chmod(0o644)
    assert ("the configuration, which holds secrets," in looked_at(config).seen) is is_secret


def test_files_of_secrets_that_options_name_are_looked_at(config):
    token = config.parent / "token"
    config.write_text(f'{config.read_text()}[[tiers]]\ndriver = "x"\noptions.token_file = "{token}"\n')
    assert looked_at(config).status == "ok"
    token.chmod(0o604)
    assert f"the file of token_file {token}" in looked_at(config).seen


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_the_command_looks_at_the_configuration_it_is_given(config, by, capsys, monkeypatch):
    offload: Offload = in_this_process(capsys, monkeypatch)
    (config.parent / "audit.jsonl").chmod(0o666)
    flags = ["--config", config] if by == "flag" else []
    if by == "environment":
        monkeypatch.setenv("PULSAR_OFFLOAD_CONFIG", str(config))
    result = offload("doctor", config.parent / "cold", "--json", "--bytes", "1000", *flags)
    assert result.code == 0
    check = next(each for each in result.json["checks"] if each["name"] == "private files")
    assert check["status"] == "warning"
    assert f"chmod go-rwx {config.parent / 'audit.jsonl'}" in check["fix"]
    assert os.stat(config.parent / "audit.jsonl").st_mode & 0o777 == 0o666  # nothing is changed
