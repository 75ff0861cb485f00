"""`offload config show`: each setting, wherever it comes from, and no secret."""

import pytest

FILE = """
[hot_tier.options]
path = "/var/lib/ledgers"
[service]
upkeep_threads = 7
tokens.secret_key = "hunter1"
tokens.superuser_roles = ["admin"]
[policies]
driver = "aws-s3"
s3_credential_secret = "hunter2"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "offload.toml"
    path.write_text(FILE)
    return path


def test_settings_are_shown_with_their_values(offload, file):
    shown = offload("config", "show", "--config", file)
    assert (shown.code, shown.err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines()[1:]}
    assert rows["service.upkeep_threads"] == ["7"]
    assert rows["service.offload_threads"] == ["4"]
    assert rows["service.stop_timeout_s"] == ["10.0"]
    assert rows["metadata.url"] == rows["tiers"] == []
    assert rows["policies.managedLedgerOffloadDriver"] == ["aws-s3"]
    assert "hunter" not in shown.out


def test_settings_are_shown_as_json(offload, file):
    shown = offload("config", "show", "--config", file, "--json")
    settings = shown.json
    assert settings["service"]["upkeep_threads"] == 7
    assert set(settings) == {
        *("metadata", "hot_tier", "tiers", "uploads", "streaming"),
        *("audit_log", "service", "policies", "retention"),
    }
    assert settings["uploads"]["niceness"] is None
    assert "hunter" not in shown.out
