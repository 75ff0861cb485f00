"""`offload namespaces`, `offload topics` and `offload config explain`."""

import json

import pytest

from offload_core.interfaces.cli.command_options import parse_size
from offload_hooks.errors import OptionError

TOPIC = "persistent://acme/n/orders"


@pytest.fixture
def on_metadata(offload, tmp_path):
    """Run a command on a database of the test's own."""
    place = ("--metadata", f"sqlite:{tmp_path}/metadata.db", "--metadata-option", "create=true")

    def run(*arguments):
        return offload(*arguments, *place)

    return run


@pytest.fixture(params=[("namespaces", "acme/n"), ("topics", TOPIC)], ids=["namespace", "topic"])
def said(request, on_metadata):
    """What a command of a level says about one namespace or topic."""
    group, name = request.param

    def run(command, *arguments):
        done = on_metadata(group, command, name, *arguments)
        assert done.code == 0, done.err
        return done.out.strip()

    return run


def test_offload_policies_are_set_shown_and_removed(said):
    assert said("get-offload-policies") == "null"
    given = ("driver=aws-s3", "managedLedgerOffloadBucket=cold", "offloadSizeInMB=1")
    assert said("set-offload-policies", *given) == ""
    assert json.loads(said("get-offload-policies")) == {
        "managedLedgerOffloadDriver": "aws-s3",
        "managedLedgerOffloadBucket": "cold",
        "managedLedgerOffloadThresholdInBytes": 1 << 20,
    }
    said("set-offload-policies", "bucket=other")
    assert json.loads(said("get-offload-policies")) == {"managedLedgerOffloadBucket": "other"}
    said("remove-offload-policies")
    assert said("get-offload-policies") == "null"


def test_single_policies_are_set_beside_the_others(said):
    said("set-offload-threshold", "--size", "20M", "--time", "5m")
    said("set-offload-threshold", "--size", "30M")
    assert said("get-offload-threshold").splitlines() == [
        f"offloadThresholdInBytes: {30 << 20}",
        "offloadThresholdInSeconds: 300",
    ]
    said("set-offload-deletion-lag", "--lag", "1d")
    assert said("get-offload-deletion-lag") == "86400000"
    said("clear-offload-deletion-lag")
    assert said("get-offload-deletion-lag") == "null"
    said("set-tiered-read-priority", "bookkeeper-first")
    assert said("get-tiered-read-priority") == "BOOKKEEPER_FIRST"
    said("remove-tiered-read-priority")
    assert said("get-tiered-read-priority") == "null"
    said("set-offload-threshold", "--size=-1", "--time=-1")
    assert json.loads(said("get-offload-policies")) == {
        "managedLedgerOffloadThresholdInBytes": -1,
        "managedLedgerOffloadThresholdInSeconds": -1,
    }


def test_retention_is_set_shown_and_removed(said):
    said("set-retention", "--size", "1G", "--time", "3h")
    assert json.loads(said("get-retention")) == {"retentionTimeInMinutes": 180, "retentionSizeInMB": 1024}
    said("remove-retention")
    assert said("get-retention") == "null"


def test_what_holds_is_explained_with_its_origin(on_metadata, tmp_path, monkeypatch):
    config = tmp_path / "offload.toml"
    config.write_text('[policies]\ndriver = "aws-s3"\ns3_credential_secret = "hunter2"\n')
    monkeypatch.setenv("PULSAR_OFFLOAD_CONFIG", str(config))
    on_metadata("namespaces", "set-offload-policies", "acme/n", "bucket=cold")
    on_metadata("topics", "set-offload-threshold", TOPIC, "--time", "60")
    shown = on_metadata("config", "explain", TOPIC)
    assert shown.code == 0, shown.err
    rows = {tuple(line.split()) for line in shown.out.splitlines()}
    assert {
        ("managedLedgerOffloadDriver", "aws-s3", "broker"),
        ("s3ManagedLedgerOffloadCredentialSecret", "********", "broker"),
        ("managedLedgerOffloadBucket", "cold", "namespace"),
        ("managedLedgerOffloadThresholdInSeconds", "60", "topic"),
        ("managedLedgerOffloadThresholdInBytes", "-1", "default"),
    } <= rows
    known = on_metadata("config", "explain", "acme/n/orders-partition-1", "--json").json
    assert known["topic"] == f"{TOPIC}-partition-1"
    assert known["policies"]["managedLedgerOffloadThresholdInSeconds"] == {"value": "60", "origin": "topic"}
    assert known["policies"]["retentionSizeInMB"] == {"value": "0", "origin": "default"}


def test_a_secret_comes_from_a_file_and_is_masked(on_metadata, tmp_path):
    file = tmp_path / "policies.json"
    file.write_text(
        '{"s3ManagedLedgerOffloadCredentialSecret": "hunter2", "managedLedgerOffloadDriver": "s3"}'
    )
    done = on_metadata("namespaces", "set-offload-policies", "acme/n", "--file", file)
    assert done.code == 0, done.err
    shown = on_metadata("namespaces", "get-offload-policies", "acme/n")
    assert shown.json["s3ManagedLedgerOffloadCredentialSecret"] == "********"


def test_an_offload_filter_is_set_shown_with_its_secrets_masked_and_removed(said):
    assert said("get-offload-filter") == "null"
    said("set-offload-filter", "transactions", "--mode", "gap")
    assert json.loads(said("get-offload-filter")) == {
        "managedLedgerOffloadFilter": "transactions",
        "managedLedgerOffloadFilterMode": "gap",
        "managedLedgerOffloadFilterOptions": None,
    }
    said("set-offload-filter", "transactions", "-o", "property=debug", "-o", "token=hunter2")
    assert json.loads(said("get-offload-filter")) == {
        "managedLedgerOffloadFilter": "transactions",
        "managedLedgerOffloadFilterMode": None,
        "managedLedgerOffloadFilterOptions": {"property": "debug", "token": "********"},
    }
    said("set-offload-threshold", "--size", "1G")
    said("remove-offload-filter")
    assert said("get-offload-filter") == "null"
    assert "1073741824" in said("get-offload-threshold")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("3kB", 3_000),
        ("10MB", 10_000_000),
        ("2 gb", 2_000_000_000),
        ("1TB", 10**12),
        ("3KiB", 3 << 10),
        ("10MiB", 10 << 20),
        ("2GiB", 2 << 30),
        ("1tib", 1 << 40),
        ("10M", 10 << 20),
        ("1g", 1 << 30),
        ("12", 12),
        ("12B", 12),
        ("-1", -1),
    ],
)
def test_units_are_powers_of_1000_or_of_1024_by_their_names(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["10MBit", "-1MB", "1.5", "i", "MB", "10 m b"])
def test_other_units_are_refused(text):
    with pytest.raises(OptionError, match="this is not a size"):
        parse_size(text)


@pytest.mark.parametrize(("given", "kept"), [("500MB", 477), ("500MiB", 500), ("1kB", 1), ("-1", -1)])
def test_a_retention_is_whole_mebibytes_and_never_less(said, given, kept):
    said("set-retention", f"--size={given}", "--time", "3h")
    assert json.loads(said("get-retention"))["retentionSizeInMB"] == kept


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set-offload-filter", "acme/n", "transactions", "-m", "hole"), "filter_mode"),
        (("set-offload-filter", "acme/n", "transaction"), "Did you mean 'transactions'?"),
        (("set-offload-policies", "acme/n"), "no policies are given"),
        (("set-offload-policies", "acme/n", "drivers=s3"), "Did you mean driver?"),
        (("set-offload-threshold", "acme/n"), "no threshold is given"),
        (("set-offload-threshold", "acme/n", "--size", "10X"), "this is not a size"),
        (("set-offload-threshold", "acme/n", "--time", "soon"), "this is not a duration"),
        (("set-tiered-read-priority", "acme/n", "hot"), "no such tiered read priority"),
        (("set-retention", "acme/n", "--size", "1G"), "--size and --time"),
        (("set-retention", "acme/n", "--size", "0", "--time", "3h"), "a retention of 0"),
        (("get-retention", "acme"), "this is no namespace"),
    ],
)
def test_what_makes_no_sense_is_refused(on_metadata, arguments, message):
    done = on_metadata("namespaces", *arguments)
    assert done.code == 2
    assert message in done.err


def test_a_threshold_beyond_retention_is_refused_with_both(on_metadata):
    on_metadata("namespaces", "set-retention", "acme/n", "--size=-1", "--time", "1h")
    done = on_metadata("topics", "set-offload-threshold", TOPIC, "--time", "1h")
    assert done.code == 2
    assert "retentionTimeInMinutes = 60" in done.err
    assert "managedLedgerOffloadThresholdInSeconds = 3600" in done.err


def test_without_a_metadata_store_it_is_said_how_to_name_one(offload):
    done = offload("config", "explain", TOPIC)
    assert done.code == 2
    assert "where is the metadata?" in done.err
