"""Nothing is passed over in silence: names that are not there, patterns that mean nothing, empty places."""

import json
from contextlib import closing

import pytest
from entries import entry, pip17_object
from tiers import lay_out

from offload_core.metadata.stores import open_metadata_store

ORDERS, TYPO = "acme/cold/orders", "acme/cold/oders"


@pytest.fixture
def tier(tmp_path):
    """Two entries of acme/cold/orders."""
    lay_out(tmp_path / "tier", pip17_object([entry(b"a"), entry(b"b")]))
    return tmp_path / "tier"


@pytest.fixture
def url(tmp_path):
    """A metadata store that has the record of another topic, which nothing was offloaded of."""
    found = f"sqlite:{tmp_path}/records.db"
    with closing(open_metadata_store(found, {"create": True})) as store:
        store.put("/managed-ledgers/acme/cold/persistent/other", b"", None)
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["history", "{tier}", TYPO],
        ["recover", "{tier}", "-t", ORDERS, "-t", TYPO],
        ["cost", "{tier}", "-t", ORDERS, "-t", TYPO],
        ["cat", "{tier}", "-t", TYPO],
        ["delete", "{tier}", TYPO, "--records", "{url}", "--not-shared"],
        ["delete", "{tier}", "acme/cold/oders/", "--records", "{url}"],
        ["delete", "{tier}", "acme/odd", "--records", "{url}", "--not-shared"],
        ["delete", "{tier}", TYPO, "--records", "{url}", "--managed-ledger"],
        ["rollback", "delete", "{tier}", "-t", TYPO, "--records", "{url}"],
    ],
)
def test_a_name_of_a_topic_that_is_not_there_is_an_error_that_names_it(offload, tier, url, arguments):
    result = offload(*(each.format(tier=tier, url=url) for each in arguments))
    assert result.code == 2
    (line,) = [line for line in result.err.splitlines() if line.startswith("offload: ")]
    assert "oders" in line or "acme/odd" in line
    assert ORDERS not in line.replace("found persistent://", "").split("expected one of")[0]


@pytest.mark.parametrize("command", ["ls", "du", "cost", "verify"])
def test_a_tier_that_is_not_there_is_an_error(offload, tmp_path, command):
    result = offload(command, tmp_path / "nowhere")
    assert (result.code, "nowhere does not exist" in result.err) == (2, True)


@pytest.mark.parametrize("more", [[], ["--json"], ["--ledgers"], ["--by", "tenant", "--json"]])
def test_ls_names_the_patterns_that_mean_nothing(offload, tier, more):
    result = offload("ls", tier, "-t", "acme/*", "-t", "acme/hot/*", *more)
    assert (result.code, "orders" in result.out or "acme" in result.out) == (0, True)
    assert result.err == f"offload: warning: no offloaded object under {tier.as_uri()} is of acme/hot/*\n"


def test_du_names_the_patterns_that_mean_nothing(offload, tier):
    result = offload("du", tier, "-t", "acme", "-t", "other", "-d", "0")
    assert result.code == 0
    assert result.err == f"offload: warning: no offloaded object under {tier.as_uri()} is of other\n"
    assert "is of other" not in offload("du", tier, "-t", "acme", "--by", "format").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls"],
        ["du"],
        ["du", "--by", "age"],
        ["cost"],
        ["report", "--output", "{folder}/page.html"],
        ["gc", "--records", "{url}"],
        ["repair"],
        ["rollback plan"],
    ],
)
def test_a_prefix_where_nothing_lies_is_said(offload, tier, url, tmp_path, arguments):
    command, *more = (each.format(url=url, folder=tmp_path) for each in arguments)
    result = offload(*command.split(), tier, *more, "--prefix", "wrong/")
    assert result.code == 0
    assert (
        f"offload: warning: no offloaded object under {tier.as_uri()} with the prefix wrong/\n" in result.err
    )
    assert "no offloaded object" not in offload(*command.split(), tier, *more).err


def test_where_nothing_streams_no_streaming_object_is_said_to_be_deleted(offload, tier):
    assert offload("rollback", "delete", tier).out == "no streaming objects\n"


def test_history_of_a_wrong_topic_names_what_lists_them(offload, tier):
    result = offload("history", tier, TYPO)
    assert result.code == 2
    assert f"nothing is known of this topic under {tier.as_uri()}" in result.err
    assert "`offload ls` lists the topics of a tier" in result.err


def test_what_is_no_offloaders_is_not_taken_for_a_find(offload, tmp_path):
    (tmp_path / "cat.png").write_bytes(b"x")
    for command in ("ls", "du"):
        assert "no offloaded object" in offload(command, tmp_path).err, command


@pytest.mark.parametrize("more", [[], ["--json"], ["--deep"]])
def test_nothing_does_not_verify(offload, tier, more):
    result = offload("verify", tier, "--prefix", "wrong/", *more)
    assert result.code == 2
    assert f"no offloaded object under {tier.as_uri()} with the prefix wrong/" in result.err
    assert "--allow-empty" in result.err
    assert offload("verify", tier, "--prefix", "wrong/", "--allow-empty", *more).code == 0


def test_gc_names_what_it_knows_nothing_of_and_not_what_has_a_record(offload, tier, url):
    named = ("-t", TYPO, "-t", "acme/cold/other", "--namespace", "odd/n")
    result = offload("gc", tier, "--records", url, *named)
    assert result.code == 0
    assert result.err == f"offload: warning: there is neither a record nor garbage of {TYPO} or odd/n\n"


def test_delete_gives_no_receipt_for_what_was_never_there(offload, tier, url, tmp_path):
    receipt, log = tmp_path / "receipt", tmp_path / "log"
    yes = ["--records", url, "--not-shared", "--yes", "--audit-log", log, "--receipt", receipt]
    result = offload("delete", tier, TYPO, *yes)
    assert (result.code, receipt.exists()) == (2, False)
    assert "neither a record nor an object of this topic: found acme/cold/oders" in result.err
    assert offload("delete", tier, TYPO, *yes, "--allow-empty").code == 0
    assert json.loads(receipt.read_text())["is_clean"]


def test_delete_knows_from_the_audit_log_what_it_deleted_before(offload, tier, url, tmp_path):
    receipt, log = tmp_path / "receipt", tmp_path / "log"
    grace = ["--grace", "0", "--accept-short-grace", "--clock-skew", "0"]
    yes = ["--records", url, "--not-shared", "--yes", "--audit-log", log, *grace]
    for name in (ORDERS, "acme/cold/orders", ORDERS):
        result = offload("delete", tier, name, *yes)
        assert (result.code, result.err) == (0, "a last listing found nothing of it\n")
    assert offload("delete", tier, ORDERS, *yes, "--receipt", receipt).code == 0
    assert offload("delete", tier, ORDERS, "--records", url, "--not-shared").code == 2
    assert offload("delete", tier, ORDERS, "--records", url, "--not-shared", "--audit-log", log).code == 0
