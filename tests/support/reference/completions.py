"""What shells complete: commands, their parameters and the values of these, from the command line itself."""

import re

from offload_core.interfaces.cli.command_help import split_help
from offload_core.interfaces.cli.commands import COMMANDS
from offload_core.interfaces.cli.completion import TIERS, TOPICS
from offload_core.maintenance.inventory.prices import EXAMPLE, example_names
from reference.commands import leaves

_CHOICES = re.compile(r"\[([\w-]+(?:\|[\w-]+)+)\]")

_NAME_A_TIER = ("url", "also_tier", "to", "moved_to")


def completions_file():
    """The file."""
    lines = []
    for each in sorted(COMMANDS, key=lambda each: each.name):
        for name, command in leaves(each.name, each.load()):
            lines.append(name)
            context = command.make_context(name, [], resilient_parsing=True)
            lines += ("\t" + "\t".join(_fields(one, context)) for one in command.params if not one.hidden)
    return "\n".join([*lines, ""])


def _fields(parameter, context):
    if parameter.param_type_name == "argument":
        kind, names = "argument", parameter.name
    else:
        kind = "flag" if parameter.is_flag else "value"
        names = ",".join(parameter.opts)
        if parameter.secondary_opts:
            names = f"{names}/{','.join(parameter.secondary_opts)}"
    help_ = " ".join(split_help(parameter.help)[0].split())
    return kind, names, "|".join(_values(parameter, context)), help_


def _values(parameter, context):
    choices = _CHOICES.fullmatch(parameter.metavar or "")
    if choices:
        return choices[1].split("|")
    if parameter.name in _NAME_A_TIER:
        return [TIERS]
    if EXAMPLE in (parameter.metavar or ""):
        return example_names()
    if "url" in context.params and (
        parameter.name == "topic" or "TOPIC" in (parameter.metavar or "").split("|")
    ):
        return [TOPICS]
    return [each.value for each in parameter.shell_complete(context, "") if each.type == "plain"]
