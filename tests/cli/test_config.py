"""`offload config show`: each setting, wherever it comes from, and no secret."""

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


def test_settings_are_shown_with_their_values_and_as_json(offload, tmp_path):
    file = tmp_path / "offload.toml"
    file.write_text(FILE)
    shown = offload("config", "show", "--config", file)
    assert (shown.code, shown.err) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines()[1:]}
    assert rows["service.upkeep_threads"] == ["7"]
    assert rows["service.offload_threads"] == ["4"]
    assert rows["service.stop_timeout_s"] == ["10.0"]
    assert rows["service.tenant_filters"] == ["disabled,", "transactions"]
    assert rows["metadata.url"] == rows["tiers"] == []
    assert rows["policies.managedLedgerOffloadDriver"] == ["aws-s3"]
    as_json = offload("config", "show", "--config", file, "--json")
    settings = as_json.json
    assert settings["service"]["upkeep_threads"] == 7
    assert set(settings) == {
        *("metadata", "hot_tier", "live", "tiers", "uploads", "streaming"),
        *("audit_log", "service", "policies", "retention"),
    }
    assert settings["uploads"]["niceness"] is None
    assert "hunter" not in shown.out + as_json.out
