"""All commands, their arguments and options, from the command line itself, as a page."""

import re

from offload_core.interfaces.cli.command_help import split_help
from offload_core.interfaces.cli.commands import COMMANDS

_HEAD = """\
# Commands

*For users of the terminal: each command with all its options.*

All commands and options, generated from the program (`make reference`). What they are for, with examples, is on the
page [Command line](../cli.md).
"""


def commands_page():
    """The page."""
    commands = sorted(COMMANDS, key=lambda each: each.name)
    described = [
        line
        for each in commands
        for name, command in leaves(f"offload {each.name}", each.load())
        for line in _described(name, command)
    ]
    return "\n".join([_HEAD, *described])


def leaves(name, command):
    """Each command of a group, or the one command, with its whole name."""
    inner = getattr(command, "commands", {})
    if not inner or getattr(command, "invoke_without_command", False):
        yield name, command
    for each, sub in sorted(inner.items()):
        if not sub.hidden:
            yield from leaves(f"{name} {each}", sub)


def _described(name, command):
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = " ".join([name, *(named(each) if each.required else f"[{named(each)}]" for each in arguments)])
    yield f"## {name}\n"
    yield f"`{usage}`\n"
    described, examples = split_help(command.help)
    yield _text(described) + "\n"
    if examples:
        yield "\n".join(["```text", *examples, "```\n"])
    shown = [each for each in command.params if not each.hidden and each.name != "help"]
    if shown:
        yield "| | Default | |\n|---|---|---|"
        for each in shown:
            yield f"| {_names(each)} | {_default(each)} | {_cell(each.help or '')} |"
        yield ""


def named(argument):
    """An argument as usages have it."""
    return argument.metavar or argument.name.upper()


def _names(parameter):
    if parameter.param_type_name == "argument":
        return f"`{named(parameter)}`"
    value = f" {parameter.metavar}" if parameter.metavar else ""
    names = [f"`{name}{value if place == 0 else ''}`" for place, name in enumerate(parameter.opts)]
    return ", ".join(_cell(name) for name in [*names, *(f"`{each}`" for each in parameter.secondary_opts)])


def _default(parameter):
    default = default_of(parameter)
    return "required" if parameter.required else "–" if default is None else f"`{default}`"


def default_of(parameter):
    """What a parameter is if it is not given, as text; None for nothing."""
    default = parameter.default
    if default is None or default == "" or default is False or callable(default):
        return None
    return str(getattr(default, "value", default))


def _cell(text):
    return _text(text).replace("|", "\\|")


def _text(text):
    return re.sub(r"\s*\n\s*(?!\n)", " ", text.strip()).replace("<", "&lt;")
