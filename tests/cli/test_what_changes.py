"""Rules over all commands: which are dry runs without `--yes`, each in a scene of its own, and exit codes.

A command that is new is classified here, or the first test fails.
"""

import enum
import re
from contextlib import closing
from pathlib import Path

import pytest
from commands import configuration_file, opened_topic
from entries import entry, pip17_object
from scenes.moves import MovedTopic
from scenes.rollbacks import MIXED, put_segment, put_whole, store_of, streaming_tier
from scenes.transactions import message
from tiers import lay_out

from offload_core.interfaces.cli.commands import COMMANDS
from offload_core.metadata.stores import open_metadata_store
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger import RolloverPolicy, TransactionalTopic


class Kind(enum.Enum):
    """What a command does to tiers, hot tiers and metadata stores; docs/cli.md has the same four."""

    LOOKS = "looks only"
    """It changes nothing there; what it is asked for it may write to a file."""
    ADDS = "adds only"
    """What was there stays as it is; of its own it removes what it could not finish."""
    SETS = "sets a policy"
    """One setting, by its name, as `pulsar-admin` does; no data."""
    CHANGES = "deletes or replaces"
    """A dry run without `--yes`."""


_POLICIES = (
    "offload-policies",
    "offload-threshold",
    "offload-deletion-lag",
    "tiered-read-priority",
    "offload-filter",
)

KINDS = {
    **dict.fromkeys(
        [
            *(
                "ls",
                "du",
                "inspect",
                "history",
                "cost",
                "report",
                "cat",
                "head",
                "warm",
                "plugins",
                "config show",
            ),
            *("config explain", "schemas show", "rollback plan", "rollback list", "topics layout"),
        ],
        Kind.LOOKS,
    ),
    **dict.fromkeys(
        ["export", "doctor", "serve", "own", "plugins new", "schemas pull", "topics offload"], Kind.ADDS
    ),
    **dict.fromkeys(
        [
            *("verify", "gc", "delete", "repair", "relocate", "recover", "rollback delete"),
            *("topics delete-hot-copies", "topics transactions"),
        ],
        Kind.CHANGES,
    ),
    **{
        f"{level} {verb}-{what}": Kind.LOOKS if verb == "get" else Kind.SETS
        for level in ("namespaces", "topics")
        for what in (*_POLICIES, "retention")
        for verb in ("set", "get", "clear" if what == "offload-deletion-lag" else "remove")
        if (verb, what) != ("remove", "offload-threshold")
    },
}


def leaves(name, command):
    inner = getattr(command, "commands", None)
    if inner is None or command.invoke_without_command:
        yield name, command
    for each, sub in (inner or {}).items():
        yield from leaves(f"{name} {each}", sub)


ALL = dict(pair for each in COMMANDS for pair in leaves(each.name, each.load()))


def test_each_command_is_classified():
    assert set(ALL) == set(KINDS)


@pytest.mark.parametrize("name", sorted(ALL))
def test_what_deletes_or_replaces_has_yes_and_nothing_else_does(name):
    has_yes = any(each.name == "yes" for each in ALL[name].params)
    assert has_yes == (KINDS[name] is Kind.CHANGES)


# --- exit codes --------------------------------------------------------------------------------

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

ON_TIERS = sorted(name for name, command in ALL.items() if any(each.name == "url" for each in command.params))


def test_what_takes_a_tier_is_all_that_the_test_below_calls():
    assert len(ON_TIERS) >= 19
    assert set(GIVEN) <= set(ON_TIERS)


@pytest.mark.parametrize(
    ("place", "said"),
    [(["s4://bucket"], "'s4'"), ([".", "-o", "colour=blue"], "colour")],
    ids=["url", "option"],
)
@pytest.mark.parametrize("name", ON_TIERS)
def test_a_scheme_or_an_option_that_nobody_knows_is_wrong_use(
    offload, tmp_path, monkeypatch, name, place, said
):
    monkeypatch.chdir(tmp_path)
    result = offload(*name.split(), place[0], *GIVEN.get(name, []), *place[1:])
    assert (result.code, result.out, said in result.err) == (2, "", True)
    assert result.err.count("\n") == 1


def test_what_changes_anything_has_a_row_in_the_table_of_exit_codes():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text().partition("## Exit codes")[2]
    rows = re.findall(r"^\| `([a-z -]+)` \|", page, re.MULTILINE)
    changing = {name for name, kind in KINDS.items() if kind is Kind.CHANGES}
    assert changing <= set(rows) <= set(ALL)


# --- scenes ------------------------------------------------------------------------------------

LOG = ["--audit-log", "{folder}/log.jsonl"]
GARBAGE = ["--grace", "0", "--accept-short-grace", "--clock-skew", "0", "--not-shared"]


def one_copy(folder):
    lay_out(folder / "tier", pip17_object([b"a", b"b"], ledger_id=7), attempt=1)


def lost_topic(folder):
    one_copy(folder)
    with closing(open_metadata_store(f"sqlite:{folder}/records.db", {"create": True})) as store:
        store.put("/managed-ledgers/acme/cold/persistent/other", b"", None)


def damaged_copy(folder):
    payloads = [entry(b"%04d" % i * 20) for i in range(40)]
    written = pip17_object(payloads, ledger_id=7, max_block_bytes=1000)
    (folder / "tier").mkdir()
    key = lay_out(folder / "tier", written, attempt=1)
    data = bytearray((folder / "tier" / key).read_bytes())
    data[written.data.index(payloads[5]) + 60] ^= 1
    (folder / "tier" / key).write_bytes(data)


def tier_without_records(folder):
    with open_store(folder / "tier") as store:
        put_segment(store, 1, (5, 0, 3), (6, 0, 4))
        put_whole(store, 2, 8, 2)


def to_be_moved(folder):
    world = MovedTopic.make(folder, f"sqlite:{folder}/records.db")
    for count in (20, 10):
        world.offload(world.add_ledger(count))
    world.records.store.close()
    world.hot.close()


def streamed(folder):
    with streaming_tier(folder):
        store_of(folder, MIXED)


def offloaded(folder):
    rollover = RolloverPolicy(max_entries=1, min_age_s=0)
    config = configuration_file(folder)
    with opened_topic(config, "acme/n/persistent/orders", rollover=rollover) as (_, topic):
        for _ in range(3):
            topic.add_entry(bytes(100))
        topic.offload_prefix(topic.last_position)


def transactional(folder):
    with opened_topic(configuration_file(folder), "acme/n/persistent/orders") as (environment, managed):
        topic = TransactionalTopic(environment, managed)
        begun = topic.begin()
        topic.add_entries([message(begun)])
        topic.abort(begun)
        managed.roll()


ON_TOPIC = ["persistent://acme/n/orders", "--config", "{folder}/offload.toml"]
RECORDS = ["--records", "sqlite:{folder}/records.db"]

SCENES = [
    ("verify", one_copy, ["{folder}/tier", "--deep", "--seal", *LOG]),
    ("gc", lost_topic, ["{folder}/tier", *RECORDS, *GARBAGE, *LOG]),
    ("delete", lost_topic, ["{folder}/tier", "acme/cold/orders", *RECORDS, *GARBAGE, *LOG]),
    (
        "delete",
        offloaded,
        ["{folder}/cold", "acme/n/orders", *RECORDS, "--managed-ledger", *ON_TOPIC[1:], *LOG],
    ),
    ("repair", damaged_copy, ["{folder}/tier", *LOG]),
    ("repair", damaged_copy, ["{folder}/tier", "--quarantine", *LOG]),
    ("relocate", to_be_moved, ["{folder}/source", "--to", "{folder}/target", *RECORDS, *LOG]),
    (
        "relocate",
        to_be_moved,
        ["{folder}/source", "--to", "{folder}/target", *RECORDS, "--delete-source", "--grace", "0", *LOG],
    ),
    (
        "recover",
        tier_without_records,
        ["{folder}/tier", "--into", "sqlite:{folder}/new.db", "--into-option", "create=true", *LOG],
    ),
    (
        "recover",
        lost_topic,
        ["{folder}/tier", "--into", "sqlite:{folder}/records.db", "--hot", "{folder}/hot", *LOG],
    ),
    ("rollback delete", streamed, ["{folder}/tier", *RECORDS, *LOG]),
    ("rollback delete", streamed, ["{folder}/tier", *RECORDS, "--release", *LOG]),
    ("topics delete-hot-copies", offloaded, [*ON_TOPIC, "--lag", "0"]),
    ("topics transactions", transactional, [*ON_TOPIC, "--reset"]),
]

AFTERWARDS = {"repair": (0, 1), "rollback delete": (1, 1), "topics transactions": (0, 1)}
"""How the command ends with `--yes`, and a dry run after that, where either finds something that stays."""


def test_each_command_that_deletes_or_replaces_has_a_scene():
    assert {name for name, _, _ in SCENES} == {name for name, kind in KINDS.items() if kind is Kind.CHANGES}


def content(folder):
    """All that lies there, to the byte; None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    ("name", "scene", "arguments"), SCENES, ids=[f"{name} {len(given)}" for name, _, given in SCENES]
)
def test_without_yes_not_a_byte_is_changed(offload, tmp_path, name, scene, arguments):
    scene(tmp_path)
    given = [*name.split(), *(each.format(folder=tmp_path) for each in arguments)]
    before = content(tmp_path)
    dry = offload(*given)
    assert dry.code == 1, dry.err  # something would be done
    assert dry.out
    assert content(tmp_path) == before
    done = offload(*given, "--yes")
    ends, ends_again = AFTERWARDS.get(name, (0, 0))
    assert done.code == ends, done.err
    after = content(tmp_path)
    assert {key for key in after if key != "log.jsonl" and after[key] != before.get(key)} | (
        before.keys() - after.keys()
    )
    assert any(key.endswith(".jsonl") and after[key] for key in after) or name == "topics transactions"
    if "--managed-ledger" not in given:  # without any record nothing is deleted
        assert offload(*given).code == ends_again
