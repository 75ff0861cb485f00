"""Help: what fits 80 columns, names no option in part, is in groups, and has examples that can be called."""

import shlex

import pytest
from typer.main import get_command

from offload_core.interfaces.cli.commands import COMMANDS, SECTIONS
from offload_core.interfaces.cli.main import make_app


def leaves(command, path):
    """Every command that does something, with its words."""
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from leaves(each, [*path, name])
    else:
        yield path, command


ALL = [(path, leaf) for each in COMMANDS for path, leaf in leaves(each.load(), [each.name])]
NAMES = [" ".join(path) for path, _ in ALL]


def examples_of(shown):
    return [line.strip() for line in shown.partition("\nExamples:\n")[2].splitlines()]


@pytest.mark.parametrize(("path", "leaf"), ALL, ids=NAMES)
def test_the_help_of_a_command_has_all_options_whole_in_80_columns(offload, path, leaf, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = offload(*path, "-h").out
    described, _, _ = shown.partition("\nExamples:\n")
    assert max(map(len, described.splitlines())) <= 80
    assert "…" not in described.replace("VALUE,…", "").replace("url=…", "")
    for each in leaf.params:
        assert all(name in described for name in each.opts if name.startswith("-"))
    assert offload("help", *path).out == offload(*path, "--help").out == shown


@pytest.mark.parametrize(("path", "leaf"), ALL, ids=NAMES)
def test_its_examples_can_be_called(offload, path, leaf):
    examples = examples_of(offload(*path, "--help").out)
    assert examples or len(path) > 1
    for line in examples:
        words = shlex.split(line)
        assert words[: len(path) + 1] == ["offload", *path]
        leaf.make_context(line, words[len(path) + 1 :])


def test_the_list_has_each_command_once_in_sections(offload):
    shown = offload("help").out
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(
        each.name for each in COMMANDS
    )
    assert all(f"\n{title}:\n" in shown for title in SECTIONS)
    assert offload().err.strip() == shown.strip()


def test_options_are_in_groups(offload):
    shown = offload("cat", "--help").out
    for title in ("Arguments", "Options", "Which messages", "Transactions", "How the tier is opened"):
        assert f"\n{title}:\n" in shown


def test_the_version_is_printed(offload):
    assert offload("--version").out.startswith("offload 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lss"], "offload: No such command 'lss'. Did you mean 'ls'?\nRun offload --help"),
        (["ls"], "offload: Missing argument 'url'.\nRun offload ls --help"),
        (
            ["ls", "x", "--toppic", "y"],
            "offload: No such option: --toppic (Possible options: --option, --topic)\n",
        ),
        (["ls", "x", "--limit", "y"], "offload: Invalid value for '--limit': "),
        (
            ["topics", "offlod"],
            "offload: No such command 'offlod'. Did you mean 'offload'?\nRun offload topics --help",
        ),
    ],
)
def test_a_wrong_option_is_reported_as_all_errors_are(offload, arguments, said):
    done = offload(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(said)


def test_the_whole_command_can_be_made():
    assert get_command(make_app()).name is not None
