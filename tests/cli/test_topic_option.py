"""`--topic` means the same for every command: a topic by either name, a namespace, a tenant, or a pattern."""

import json
from urllib.parse import quote_plus

import pytest
from entries import pip17_object
from records import MANAGED_LEDGERS
from tiers import Names, lay_out, lay_out_broker_objects

from offload_core.interfaces.cli.commands import COMMANDS

TOPICS = {"avro", "jmisc", "json", "jstring"}
J = {"jmisc", "json", "jstring"}


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    root = tmp_path_factory.mktemp("tier")
    lay_out_broker_objects(root, TOPICS)
    return root


def of_json(found):
    return {each["topic"] for each in found}


CALLS = {
    "ls": (["--json"], lambda done: of_json(done.json["topics"])),
    "du": ([], lambda done: {word for word in done.out.split() if word.count("/") == 2}),
    "cost": (["--no-scan", "--json"], lambda done: of_json(done.json["stored"])),
    "recover": (["--json"], lambda done: of_json(done.json["topics"])),
    "cat": (
        ["--level", "entries", "--format", "jsonl", "--columns", "__topic", "--limit", "100000"],
        lambda done: {json.loads(line)["__topic"] for line in done.out.splitlines()},
    ),
    "head": (["--limit", "1", "--level", "entries"], lambda done: {
        line.strip() for line in done.out.splitlines() if line.startswith("persistent://")
    }),
    "schemas pull": (
        ["--from", "literal:type=STRING", "--to", "{target}"],
        lambda done: {line.partition(": ")[0] for line in done.out.splitlines()},
    ),
}  # fmt: skip
"""Further options of a command, and the topics that it names."""


@pytest.mark.parametrize("command", CALLS)
@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ("acme/cold/json", {"json"}),
        ("persistent://acme/cold/json", {"json"}),
        ("acme/cold/j*", J),
        ("persistent://acme/cold/js?????", {"jstring"}),
        ("acme/cold", TOPICS),
        ("acme", TOPICS),
    ],
)
def test_it_means_the_same(offload, tier, tmp_path, command, given, chosen):
    more, topics = CALLS[command]
    target = tmp_path / "target"
    target.mkdir()
    done = offload(
        *command.split(), tier, "--topic", given, *(str(each).format(target=target) for each in more)
    )
    assert done.code in (0, 1), done.err
    assert {each.rpartition("/")[2] for each in topics(done)} == chosen


@pytest.mark.parametrize("given", ["acme/hot/*", "acme/hot", "other"])
@pytest.mark.parametrize(
    "command", ["cat", "head", "cost", "recover", "repair", "schemas show", "relocate --to {target}"]
)
def test_what_nothing_matches_is_an_error(offload, tier, tmp_path, command, given):
    name, *more = command.format(target=tmp_path).partition(" --to")[0].split()
    to = ["--to", tmp_path] if name == "relocate" else []
    done = offload(name, *more, tier, "--topic", given, *to)
    assert (done.code, f"found {given}" in done.err) == (2, True), done.err


def test_all_commands_describe_it_alike():
    described = {}
    for each in COMMANDS:
        command = each.load()
        for name, leaf in {"": command, **getattr(command, "commands", {})}.items():
            for parameter in leaf.params:
                if "--topic" in parameter.opts:
                    described.setdefault(parameter.help, []).append(f"{each.name} {name}")
    assert len(described) == 1, described


def test_a_pattern_without_a_match_is_a_warning_of_gc(offload, tier):
    found = offload("gc", tier, "--records", MANAGED_LEDGERS, "--topic", "acme/cold/j*", "--json")
    assert (found.code, found.err) == (0, "")
    nothing = offload("gc", tier, "--records", MANAGED_LEDGERS, "--topic", "acme/hot/*")
    assert "there is neither a record nor garbage of acme/hot/*" in nothing.err


def test_a_name_with_the_characters_of_patterns_is_its_topic(offload, tmp_path):
    for number, name in enumerate(("a[b]", "ab"), 1):
        names = Names(managed_ledger=f"acme/cold/persistent/{quote_plus(name)}")
        lay_out(tmp_path, pip17_object([b"x"], ledger_id=number), attempt=number, names=names)
    for command in ("ls", "recover"):
        found = offload(command, tmp_path, "--topic", "acme/cold/a[b]", "--json").json["topics"]
        assert {"persistent://acme/cold/a[b]"} <= of_json(found)
