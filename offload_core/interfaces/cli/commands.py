"""The commands of `offload`: the module of each, and its help in a line, as its own help begins (a test compares).

They are imported when they are called. To list them their names and first lines are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from typer.main import get_command, get_group

from offload_core.interfaces.cli.command_help import CommandGroup, HelpedGroup
from offload_core.interfaces.cli.completion import is_completing, outline


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCommand:
    """A command of the first level, and its place.

    Attributes:
        module, function: the command itself, or if `is_group` what makes the `Typer` of its commands.
        help: the first line of its own help.
    """

    name: str
    module: str
    function: str
    help: str
    is_group: bool = False

    def load(self) -> Any:
        """Import the command, with all its options; for completion, only these."""
        if is_completing():
            return outline(self.name)
        loaded = getattr(import_module(self.module), self.function)
        if self.is_group:
            return get_group(loaded())
        alone = CommandGroup(add_completion=False)
        alone.command(self.name)(loaded)
        return get_command(alone)


def _command(name: str, help_: str, *, module: str | None = None, is_group: bool = False) -> LateCommand:
    return LateCommand(
        name=name,
        module=f"offload_core.interfaces.cli.{module or name}",
        function=f"{name}_group" if is_group else name,
        help=help_,
        is_group=is_group,
    )


COMMANDS = (
    _command(
        "ls",
        "List what a tier holds, by topic, ledger or other groups: entries, sizes, formats, ages and problems.",
    ),
    _command(
        "head",
        "Show the first messages of each topic: one listing for all, and one small range of each.",
        module="cat",
    ),
    _command("du", "Count the bytes of a tier: data and index objects of all attempts, read or not."),
    _command(
        "inspect", "Show an object's index and blocks, and whether each block's header agrees with the index."
    ),
    _command(
        "history",
        "Show the life of a topic's ledgers in order of time: closed, tried, offloaded, replaced, deleted.",
        module="topic_history",
    ),
    _command(
        "verify",
        "Verify a tier's objects and indexes, with --records what records name, with --deep every byte.",
    ),
    _command("gc", "Find what no managed ledger's record needs; with --yes delete it."),
    _command(
        "delete", "Delete what deleted topics, one or all of a namespace, left in a tier; with a receipt."
    ),
    _command(
        "repair",
        "Rebuild indexes, save what damaged objects still hold into new ones, and quarantine the rest.",
    ),
    _command(
        "relocate",
        "Move cold copies to another tier or format: copy and verify them, then change the records.",
    ),
    _command(
        "recover", "Rebuild managed ledgers' records from a tier alone, and report what cannot be known."
    ),
    _command(
        "cost", "Show requests, bytes and money: of what is stored, of a full scan before it runs, of a move."
    ),
    _command(
        "report",
        "Write one self-contained page about a tier: topics, ledgers, growth, sizes, ages, problems.",
    ),
    _command("cat", "Print or write the messages, or the stored entries, of topics or of one ledger."),
    _command(
        "export", "Export topics, each message once: what is new since the last export, however that ended."
    ),
    _command(
        "doctor",
        "Check that a tier can be reached, written, listed, read and cleaned up, and show what to fix.",
    ),
    _command(
        "serve", "Answer Pulsar's admin requests for the topics of this service, until SIGTERM or Ctrl-C."
    ),
    _command(
        "own",
        "Do the same as the owner of all topics that no other process has open, and keep them by their policies.",
        module="serve",
    ),
    _command(
        "plugins",
        "List the plugins of each kind, their distributions, and which are broken and why; or begin a new plugin.",
        is_group=True,
    ),
    _command("schemas", "Save and show topics' schemas, which offloaded objects do not hold.", is_group=True),
    _command(
        "config", "Show the settings, and the policies that apply to a topic.", module="serve", is_group=True
    ),
    _command(
        "namespaces",
        "Set and get the offload policies and the retention of namespaces.",
        module="policy_commands",
        is_group=True,
    ),
    _command(
        "topics",
        "Offload topics; set and get their offload policies and retention.",
        module="topic_commands",
        is_group=True,
    ),
    _command("warm", "Compile what reading messages needs, so that the first query does not."),
    _command("rollback", "Go back from streaming offload to a version without it.", is_group=True),
)


SECTIONS = {
    "List and inspect": ("ls", "du", "inspect", "history", "cost", "report"),
    "Read messages": ("head", "cat", "export", "schemas", "warm"),
    "Verify and repair": ("doctor", "verify", "repair", "recover"),
    "Move and delete": ("relocate", "gc", "delete", "rollback"),
    "Offload and serve": ("topics", "namespaces", "config", "serve", "own", "plugins"),
}
"""The commands as help lists them."""


def group_class(commands: tuple[LateCommand, ...]) -> type[HelpedGroup]:
    """Return the class of a group that has placeholders of these commands, and calls the commands themselves."""
    by_name = {each.name: each for each in commands}

    class Late(HelpedGroup):
        sections = SECTIONS

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, found, rest = super().resolve_command(ctx, args)
            return name, found if name is None or found is None else by_name[name].load(), rest

    return Late


def add_late(app: CommandGroup, commands: tuple[LateCommand, ...]) -> None:
    """Add placeholders, for help and completion."""
    for each in commands:
        app.command(each.name, help=each.help)(_placeholder)


def _placeholder() -> None:
    raise AssertionError("the command itself is called")
