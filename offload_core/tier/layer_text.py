"""A layer or another plugin as text, for command lines and options: `retry` or `retry:attempts=5,budget_s=60`."""

from __future__ import annotations

import re

from offload_hooks.errors import OptionError

_LAYER = re.compile(r"\s*([^:=,;\s]+)\s*(?::(.*))?", re.DOTALL)


def parse_layer(text: str) -> tuple[str, dict[str, object]]:
    """The layer's name and its options, all of them text; `OptionError` for another form."""
    return parse_plugin(text, "layer")


def parse_plugin(text: str, noun: str) -> tuple[str, dict[str, object]]:
    """The name of a plugin and its options, all of them text; `OptionError` for another form."""
    matched = _LAYER.fullmatch(text)
    options: dict[str, object] = {}
    for option in (matched[2] or "").split(",") if matched else ():
        name, separator, value = option.partition("=")
        if separator and name.strip() and name.strip() not in options:
            options[name.strip()] = value.strip()
        elif option.strip():
            matched = None
            break
    if matched is None:
        name = re.split(r"[:=,;]", text, maxsplit=1)[0].strip()  # what follows may be secret
        raise OptionError(
            f"the {noun} {name!r} is written in another form",
            expected="NAME or NAME:OPTION=VALUE,OPTION=VALUE",
        )
    return matched[1], options


def parse_layers(text: str) -> tuple[str, ...]:
    """The layers of one text, with `;` between them, outermost first."""
    return tuple(layer.strip() for layer in text.split(";") if layer.strip())
