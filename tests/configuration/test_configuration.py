"""Settings from flags, the environment and a file; what counts before what, and what is refused."""

from __future__ import annotations

import pytest

from offload_core.metadata.policies import RetentionPolicies, parse_policies
from offload_core.writing.configuration import Configuration, load_configuration
from offload_hooks.errors import OptionError

FILE = """
[metadata]
url = "sqlite:/var/lib/offload.db"
options = { create = true, timeout_s = 5 }

[hot_tier]
options.path = "/var/lib/offload"

[service]
port = 8443
tokens.secret_key = "c2VjcmV0"
tokens.superuser_roles = ["admin"]

[policies]
managedLedgerOffloadDriver = "aws-s3"
max_threads = 3
offloadSizeInMB = 10
s3ManagedLedgerOffloadCredentialSecret = "hunter2"

[retention]
retentionTimeInMinutes = 60
retentionSizeInMB = -1
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "offload.toml"
    path.write_text(FILE)
    return path


def test_a_file_is_read(file):
    found = load_configuration(file)
    assert found.metadata.url == "sqlite:/var/lib/offload.db"
    options = {name: value.get_secret_value() for name, value in found.metadata.options.items()}
    assert options == {"create": "true", "timeout_s": "5"}
    assert (found.hot_tier.store, found.service.host, found.service.port) == ("embedded", "127.0.0.1", 8443)
    assert found.service.tokens.superuser_roles == {"admin"}
    said = {"driver": "aws-s3", "max_threads": 3, "threshold_in_bytes": 10 << 20}
    assert found.policies == parse_policies(said | {"s3_credential_secret": "hunter2"})
    assert found.retention == RetentionPolicies(time_in_minutes=60, size_in_mb=-1)


def test_without_anything_the_defaults_hold():
    assert load_configuration() == Configuration()


def test_flags_count_before_the_environment_and_this_before_the_file(file, monkeypatch):
    monkeypatch.setenv("PULSAR_OFFLOAD_SERVICE__PORT", "9000")
    monkeypatch.setenv("pulsar_offload_service__host", "127.0.0.2")
    monkeypatch.setenv("PULSAR_OFFLOAD_POLICIES__MAX_THREADS", "5")
    monkeypatch.setenv("PULSAR_OFFLOAD_METADATA__OPTIONS__TIMEOUT_S", "6")
    monkeypatch.setenv("PULSAR_OFFLOAD_CONFIG", str(file))
    found = load_configuration(flags={"service": {"port": 9001}})
    assert (found.service.host, found.service.port) == ("127.0.0.2", 9001)
    assert (found.policies.max_threads, found.policies.driver) == (5, "aws-s3")
    options = {name: value.get_secret_value() for name, value in found.metadata.options.items()}
    assert options == {"create": "true", "timeout_s": "6"}
    assert found.retention == RetentionPolicies(time_in_minutes=60, size_in_mb=-1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("service = 3", "at service"),
        ("[service]\nport = 70000", r"at service\.port"),
        ("[service]\nports = 1", r"at service\.ports"),
        ("[service]\nupkeep_threads = 0", r"at service\.upkeep_threads"),
        ("[service]\nupkeep_threads = 1001", r"at service\.upkeep_threads"),
        ("[service]\noffload_threads = 0", r"at service\.offload_threads"),
        ("[service]\nstop_timeout_s = -1", r"at service\.stop_timeout_s"),
        ("[uploads]\nniceness = -1", r"at uploads\.niceness"),
        ("[uploads]\nniceness = 20", r"at uploads\.niceness"),
        ("[nothing]", "at nothing"),
        ("[policies]\nmanagedLedgerOffloadDrivers = 's3'", "at policies.*mean managedLedgerOffloadDriver"),
        ("[policies]\nmax_threads = 0", "at policies.*max_threads"),
        ("[retention]\nretentionTimeInMinutes = -2", "at retention"),
        ("[", "no TOML"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match=message):
        load_configuration(path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(OptionError, match=r"cannot be read .*nowhere\.toml.*No such file"):
        load_configuration(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("name", ["PULSAR_OFFLOAD_METDATA__URL", "PULSAR_OFFLOAD_METADATA__URI"])
def test_an_environment_that_names_nothing_is_refused(monkeypatch, name):
    monkeypatch.setenv(name, "x")
    with pytest.raises(OptionError, match=r"(?i)metd?a?data"):
        load_configuration()


@pytest.mark.parametrize(
    "flags",
    [
        {"metadata": {"options": {"digest": "me:hunter2"}}},
        {"hot_tier": {"options": {"password": "hunter2"}}},
        {"service": {"tokens": {"secret_key": "hunter2"}}},
        {"policies": {"s3_credential_secret": "hunter2"}},
    ],
)
def test_what_may_be_secret_is_in_no_repr_and_no_error(flags):
    assert "hunter2" not in f"{load_configuration(flags=flags)!r}"
    (section,) = flags
    with pytest.raises(OptionError) as caught:
        load_configuration(flags={section: flags[section] | {"wrong": "hunter2"}})
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__context__}"


def test_uploads_have_a_niceness():
    assert load_configuration(flags={"uploads": {"niceness": "5"}}).uploads.niceness == 5
