"""Exit codes are the same everywhere: over all commands, and as docs/cli.md has them."""

import re
from contextlib import closing
from pathlib import Path

import pytest
from entries import pip17_object
from tiers import lay_out

from offload_core.interfaces.cli.commands import COMMANDS
from offload_core.metadata.stores import open_metadata_store

ROOT = Path(__file__).parents[2]

GIVEN = {
    "history": ["acme/cold/orders"],
    "delete": ["acme/cold/orders", "--records", "sqlite:none"],
    "gc": ["--records", "sqlite:none"],
    "inspect": ["00000000-0000-4000-8000-000000000001-ledger-7"],
    "report": ["--output", "page.html"],
    "cat": ["--topic", "acme/cold/orders"],
    "export": ["--topic", "acme/cold/orders", "--to", "rows"],
    "schemas pull": ["--from", "http://127.0.0.1:1"],
    "relocate": ["--to", "elsewhere"],
}
"""What a command needs beside its tier."""


def leaves(name, command):
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for each, sub in inner.items():
        yield from leaves(f"{name} {each}", sub)


ALL = dict(pair for each in COMMANDS for pair in leaves(each.name, each.load()))
ON_TIERS = sorted(name for name, command in ALL.items() if any(each.name == "url" for each in command.params))


def test_what_takes_a_tier_is_all_that_the_tests_below_call():
    assert len(ON_TIERS) >= 19
    assert set(GIVEN) <= set(ON_TIERS)


@pytest.mark.parametrize("name", ON_TIERS)
def test_a_scheme_that_nobody_knows_is_wrong_use(offload, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = offload(*name.split(), "s4://bucket", *GIVEN.get(name, []))
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert "'s4'" in result.err


@pytest.mark.parametrize("name", ON_TIERS)
def test_an_option_of_the_driver_that_it_does_not_have_is_wrong_use(offload, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    result = offload(*name.split(), tmp_path, *GIVEN.get(name, []), "-o", "colour=blue")
    assert (result.code, result.out, "colour" in result.err) == (2, "", True)


def test_what_changes_anything_has_a_row_in_the_table_of_exit_codes():
    page = (ROOT / "docs" / "cli.md").read_text().partition("## Exit codes")[2]
    rows = re.findall(r"^\| `([a-z -]+)` \|", page, re.MULTILINE)
    changing = {name for name, command in ALL.items() if any(each.name == "yes" for each in command.params)}
    assert changing <= set(rows) <= set(ALL)


@pytest.fixture
def tier(tmp_path):
    """A ledger whose topic has no record, and one whose data object lacks its index."""
    lay_out(tmp_path / "tier", pip17_object([b"a", b"b"]), attempt=1)
    return tmp_path / "tier"


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "gc",
            "{tier}",
            *(short := ["--grace", "0", "--accept-short-grace", "--clock-skew", "0"]),
            "--not-shared",
        ],
        ["delete", "{tier}", "acme/cold/orders", *short, "--not-shared"],
        ["recover", "{tier}", "--into", "{url}"],
        ["verify", "{tier}", "--deep", "--seal"],
    ],
    ids=lambda each: str(each[0]),
)
def test_a_dry_run_ends_with_1_as_long_as_something_is_to_be_done(offload, tier, tmp_path, arguments):
    url = f"sqlite:{tmp_path}/records.db"
    with closing(open_metadata_store(url, {"create": True})) as store:
        store.put("/managed-ledgers/acme/cold/persistent/other", b"", None)
    before = sorted(tier.iterdir())
    given = [each.format(tier=tier, url=url) for each in arguments]
    given += ["--records", url] if given[0] in ("gc", "delete") else []
    dry = offload(*given)
    assert (dry.code, sorted(tier.iterdir())) == (1, before), dry.err
    done = offload(*given, "--yes", "--audit-log", tmp_path / "log")
    assert done.code == 0, done.err + done.out
    assert offload(*given, "--audit-log", tmp_path / "log").code == 0
