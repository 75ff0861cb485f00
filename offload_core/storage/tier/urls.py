"""Parse what a user types for a Tier: a URL, a path or a driver's name, and options.

    file:///data/x, s3://bucket/prefix   the URL's scheme picks the driver, which reads its options from the URL
    /data/x, ./x, ../x, ~/x, a/b         a path, which is taken as a `file:` URL
    local                                a driver's name; everything else comes as options

An option that is given by the URL and by name, with different values, is refused; nothing silently wins.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offload_core.storage.tier import registry
from offload_core.storage.tier.registry import PluginSpec, TierSpec
from offload_core.storage.tier.tier import Tier
from offload_core.storage.tier.upload_process import (
    DEFAULT_TIMEOUTS,
    UploadProcess,
    UploadTimeouts,
    open_with_upload_process,
)
from offload_hooks.errors import BrokenPluginError, OffloadError, OptionError, UnknownPluginError

_LAYER = re.compile(r"\s*([^:=,;\s]+)\s*(?::(.*))?", re.DOTALL)


def parse_plugin(text: str, noun: str) -> tuple[str, dict[str, object]]:
    """The name of a plugin and its options, all of them text; `OptionError` for another form."""
    matched = _LAYER.fullmatch(text)
    options: dict[str, object] = {}
    for option in _split_options(matched[2] or "") if matched else ():
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


PluginGiven = str | tuple[str, Mapping[str, object]] | PluginSpec
"""A plugin as it is given by callers: a text, as `parse_plugin` takes it, a pair of name and options, or its spec."""


def plugin_spec(given: PluginGiven, noun: str) -> PluginSpec:
    """The spec of a plugin; `OptionError` for a text of another form."""
    if isinstance(given, PluginSpec):
        return given
    name, options = parse_plugin(given, noun) if isinstance(given, str) else given
    return PluginSpec(name=name, options=dict(options))


def _split_options(text: str) -> Iterator[str]:
    """The options of a plugin as they are written, with commas between them; a value that is JSON may have its own."""
    while text:
        end = text.find(",")
        name, separator, value = text.partition("=")
        if separator and "," not in name and value.startswith(("{", "[")):
            with suppress(ValueError, RecursionError):  # else it only begins like JSON
                _, length = json.JSONDecoder().raw_decode(value)
                end = text.find(",", len(name) + 1 + length)
        yield text if end < 0 else text[:end]
        text = "" if end < 0 else text[end + 1 :]


def parse_layers(text: str) -> tuple[str, ...]:
    """The layers of one text, with `;` between them, outermost first."""
    return tuple(layer.strip() for layer in text.split(";") if layer.strip())


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")


def open_store(
    url_or_driver: str | os.PathLike[str],
    *,
    driver: str | None = None,
    layers: Sequence[PluginGiven] | None = None,
    upload_niceness: int | None = None,
    upload_timeouts: UploadTimeouts = DEFAULT_TIMEOUTS,
    **options: object,
) -> Tier:
    """Open a tier by a URL, a path or a driver's name.

    Args:
        url_or_driver: a URL, a path of this machine, or the name of an installed driver.
        driver: the driver to use for the URL instead of the one that its scheme picks.
        layers: outermost first; each a pair of name and options, or a text, `retry` or `retry:attempts=5`. None for
            those that the driver asks for by its `default_layers`.
        upload_niceness: blocks are written by a process of their own, whose priority is lower by this, 0 to 19; None
            for this process.
        upload_timeouts: limits after which such a process is killed.
        options: the driver's options, by their names.

    Nothing is asked of the store yet. Errors: `OptionError` (an option that is wrong or missing),
    `UnknownPluginError`, `MissingExtraError` (with the install line), `BrokenPluginError`.
    """
    if isinstance(layers, str):
        raise OptionError(f"layers is a list of layers, not one name: {layers!r}")
    name, from_url = _driver_and_options(url_or_driver, driver)
    for option in sorted(from_url.keys() & options.keys()):
        if from_url[option] != options[option]:
            raise OptionError(
                f"the option {option!r} is given twice, by the URL and by name", hint="Give it once."
            )
    if layers is None:
        layers = getattr(registry.load_driver(name), "default_layers", ())
    layer_specs = tuple(plugin_spec(layer, "layer") for layer in layers)
    spec = TierSpec(driver=name, options={**from_url, **options}, layers=layer_specs)
    if upload_niceness is None:
        return Tier.open(spec)
    return open_with_upload_process(
        spec, UploadProcess(spec, niceness=upload_niceness, timeouts=upload_timeouts)
    )


def open_like(tier: Tier, url: str | os.PathLike[str], **options: Any) -> Tier:
    """Open another place by a URL or path: with these options if its driver is that of `tier`, else with none.

    Errors: those of `open_store`.
    """
    name, _ = _driver_and_options(url, None)
    if tier.spec is not None and registry.load_driver(name) is registry.load_driver(tier.spec.driver):
        return open_store(url, driver=None, layers=None, upload_niceness=None, **options)
    return open_store(url)


def open_beside(
    tier: Tier, others: Sequence[str | os.PathLike[str] | Tier], options: Mapping[str, object]
) -> Tier:
    """A tier with others that are read together with it, see `several_tiers`; itself, if there are none.

    Args:
        others: open tiers, or URLs and paths, which are opened with these options if their driver is that of `tier`.

    Errors: those of `open_store`.
    """
    opened = [each if isinstance(each, Tier) else open_like(tier, each, **options) for each in others]
    return tier.with_others(opened) if opened else tier


def _driver_and_options(
    url_or_driver: str | os.PathLike[str], driver: str | None
) -> tuple[str, Mapping[str, object]]:
    url = _as_url(url_or_driver)
    if url is not None:
        name = driver if driver is not None else registry.driver_of_scheme(_scheme(url))
        return name, _options_from_url(name, url)
    name = str(url_or_driver)
    if driver is not None and driver != name:
        raise OptionError(
            f"two drivers are named, {name!r} and {driver!r}", hint="With driver=, give a URL or path."
        )
    try:
        registry.find(registry.DRIVERS, name)
    except UnknownPluginError as error:
        if driver is not None:
            raise
        if Path(name).is_dir():
            error.hint = f"If the directory is meant, write ./{name}. {error.hint}"
            raise
        raise UnknownPluginError(
            f"there is no directory {name!r}, and no driver of this name", hint=error.hint
        ) from None
    return name, {}


def _as_url(given: str | os.PathLike[str]) -> str | None:
    """The URL that is meant, None for a driver's name."""
    text = os.fspath(given)
    if not text:
        raise OptionError("an empty text is neither a URL nor a path nor a driver's name")
    is_path = (
        not isinstance(given, str) or text in (".", "..", "~") or text.startswith(("/", "./", "../", "~/"))
    )
    if not is_path and _SCHEME.match(text):
        return text
    if is_path or "/" in text:
        return Path(text).expanduser().absolute().as_uri()
    return None


def _scheme(url: str) -> str:
    matched = _SCHEME.match(url)
    assert matched is not None
    return matched[1]


def _options_from_url(name: str, url: str) -> Mapping[str, object]:
    read = getattr(registry.load_driver(name), "options_from_url", None)
    if read is None:
        raise OptionError(f"the driver {name!r} takes no URL", hint="Give its name and its options instead.")
    try:
        options: Mapping[str, object] = read(url)
    except OffloadError:
        raise
    except Exception as error:  # a plugin's own code; its text may quote credentials of the URL
        raise BrokenPluginError(
            f"the driver {name!r} cannot read options from its URL", found=registry.place_of(error)
        ) from None
    return options
