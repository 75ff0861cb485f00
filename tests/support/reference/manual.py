"""The man page `offload(1)`: all commands, their arguments and options, from the command line itself."""

import re
from importlib.metadata import version
from inspect import getdoc

from offload_core.interfaces.cli.command_help import root, split_help
from offload_core.interfaces.cli.commands import COMMANDS, SECTIONS
from reference.commands import default_of, leaves, named

_ENDING = """\
.SH EXIT STATUS
0: done. 1: an error, in one line on the standard error; of commands that look for something: they found it. 2: wrong
use, or the name of something that does not exist. 130: interrupted.
.SH SEE ALSO
\\fBoffload help\\fR \\fICOMMAND\\fR shows the options of a command in groups.
"""


def manual_page():
    """The page, as troff."""
    lines = [
        f'.TH OFFLOAD 1 "" "pulsar-offload {version("pulsar-offload")}"',
        ".SH NAME",
        f"offload \\- {_text(getdoc(root).rstrip('.'))}",
        ".SH SYNOPSIS",
        "\\fBoffload\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR ...] [\\fIOPTION\\fR ...]",
        ".SH COMMANDS",
    ]
    by_name = {each.name: each for each in COMMANDS}
    for title, names in SECTIONS.items():
        lines += [f".SS {_text(title)}"]
        for name in names:
            lines += [".TP", f"\\fB{_text(name)}\\fR", _text(by_name[name].help)]
    for names in SECTIONS.values():
        for name in names:
            for whole, command in leaves(f"offload {name}", by_name[name].load()):
                lines += _command(whole, command)
    return "\n".join([*lines, _ENDING])


def _command(name, command):
    parameters = [each for each in command.params if not each.hidden and each.name != "help"]
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    usage = " ".join(
        f"\\fI{_text(named(each) if each.required else f'[{named(each)}]')}\\fR" for each in arguments
    )
    yield f".SH {_text(name.upper())}"
    yield f"\\fB{_text(name)}\\fR {usage}"
    described, examples = split_help(command.help)
    for paragraph in described.split("\n\n"):
        yield f".PP\n{_text(paragraph)}"
    for each in parameters:
        default = default_of(each)
        yield ".TP"
        yield _names(each)
        yield _text(each.help or "") + ("" if default is None else f" Default: {_text(default)}.")
    if examples:
        yield ".PP\nExamples:\n.PP\n.nf"
        yield from (f"    {_text(line)}" for line in examples)
        yield ".fi"


def _names(parameter):
    if parameter.param_type_name == "argument":
        return f"\\fI{_text(named(parameter))}\\fR"
    value = f" \\fI{_text(parameter.metavar)}\\fR" if parameter.metavar else ""
    names = (f"\\fB{_text(each)}\\fR" for each in (*parameter.opts, *parameter.secondary_opts))
    return ", ".join(names) + value


def _text(text):
    """Text in one line, in which nothing is an order to troff."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", line)
