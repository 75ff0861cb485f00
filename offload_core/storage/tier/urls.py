"""Parse what a user types for a Tier: a URL, a path, a driver's name or a tier's, and options.

    file:///data/x, s3://bucket/prefix   the URL's scheme picks the driver, which reads its options from the URL
    /data/x, ./x, ../x, ~/x, a/b         a path, which is taken as a `file:` URL
    local                                a driver's name; everything else comes as options
    prod                                 a tier that has this name (`named_tiers`), which no driver may have

An option that is given twice with different values, by the URL, by the tier's name, by `storage_options` and by its
own name, is refused; nothing silently wins.
"""

from __future__ import annotations

import difflib
import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offload_core.storage.named_tiers import NamedTier, named_tiers
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
    storage_options: object = None,
    **options: object,
) -> Tier:
    """Open a tier by a URL, a path, its name or a driver's name.

    Args:
        url_or_driver: a URL, a path of this machine, the name of an installed driver, or the name of a tier in the
            user's file or the environment (docs/configuration.md).
        driver: the driver to use for the URL instead of the one that its scheme picks.
        layers: outermost first; each a pair of name and options, or a text, `retry` or `retry:attempts=5`. None for
            those that the driver asks for by its `default_layers`.
        upload_niceness: blocks are written by a process of their own, whose priority is lower by this, 0 to 19; None
            for this process.
        upload_timeouts: limits after which such a process is killed.
        storage_options: the driver's options as a dict, as fsspec and pandas have them.
        options: the driver's options, by their names.

    Nothing is asked of the store yet. Errors: `OptionError` (an option that is wrong or missing),
    `UnknownPluginError`, `MissingExtraError` (with the install line), `BrokenPluginError`.
    """
    place = find_place(
        url_or_driver, driver=driver, layers=layers, storage_options=storage_options, options=options
    )
    if upload_niceness is None:
        return Tier.open(place.spec)
    return open_with_upload_process(
        place.spec, UploadProcess(place.spec, niceness=upload_niceness, timeouts=upload_timeouts)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tier is, and how it is opened.

    Attributes:
        name: the tier's, if it has one.
        options: those of its driver that no URL names.
    """

    spec: TierSpec
    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)


def find_place(
    url_or_driver: str | os.PathLike[str],
    *,
    driver: str | None = None,
    layers: Sequence[PluginGiven] | None = None,
    storage_options: object = None,
    options: Mapping[str, object] | None = None,
) -> Place:
    """The place that a user names; the arguments are those of `open_store`.

    Errors: those of `open_store`, but for values of options.
    """
    if isinstance(layers, str):
        raise OptionError(f"layers is a list of layers, not one name: {layers!r}")
    named = None if driver is not None else _tier_named(url_or_driver)
    if named is None:
        name, from_url = _driver_and_options(url_or_driver, driver)
        of_tier: Mapping[str, object] = {}
    else:
        name, from_url = _driver_and_options(named.url or named.driver or "", named.driver)
        of_tier, layers = named.options, named.layers if layers is None else layers
    if layers is None:
        layers = getattr(registry.load_driver(name), "default_layers", ())
    given = {
        f"by the tier {named.name!r}" if named else "": of_tier,
        "by storage_options": _storage_options(name, storage_options),
        "by name": options or {},
    }
    return Place(
        spec=TierSpec(
            driver=name,
            options=_merged({"by the URL": from_url, **given}),
            layers=tuple(plugin_spec(layer, "layer") for layer in layers),
        ),
        name=named.name if named else None,
        options=_merged(given),
    )


def open_like(tier: Tier, url: str | os.PathLike[str], **options: Any) -> Tier:
    """Open another place by a URL or path: with these options if its driver is that of `tier`, else with none.

    A tier by its name has its own options, and no others. Errors: those of `open_store`.
    """
    place = find_place(url)
    if place.name is None and tier.spec is not None and _is_same_driver(place.spec.driver, tier.spec.driver):
        return open_store(url, driver=None, layers=None, upload_niceness=None, **options)
    return Tier.open(place.spec)


def _is_same_driver(name: str, other: str) -> bool:
    return registry.load_driver(name) is registry.load_driver(other)


def _storage_options(driver: str, given: object) -> Mapping[str, object]:
    """Options as fsspec and pandas have them; those of a driver that has an option of this name are that option."""
    if given is None:
        return {}
    if "storage_options" in inspect.signature(registry.load_driver(driver)).parameters:
        return {"storage_options": given}
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise OptionError("storage_options is no mapping", expected="a dict of the driver's options by name")
    return given


def _merged(parts: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Options from several places; one that is given twice, with different values, is refused."""
    merged: dict[str, object] = {}
    places: dict[str, str] = {}
    for place, options in parts.items():
        for option, value in options.items():
            if option in merged and merged[option] != value:
                raise OptionError(
                    f"the option {option!r} is given twice, {places[option]} and {place}",
                    hint="Give it once.",
                )
            merged[option] = value
            places.setdefault(option, place)
    return merged


def _tier_named(given: str | os.PathLike[str]) -> NamedTier | None:
    """The tier of this name; None for what is a URL, a path or a driver's name, and for a name that no tier has."""
    if _as_url(given) is not None or given in _drivers():
        return None
    return _named_tiers().get(str(given))


def _named_tiers() -> dict[str, NamedTier]:
    tiers = named_tiers()
    for name in tiers.keys() & _drivers():
        raise OptionError(
            f"the tier {name!r} has the name of a driver",
            found=tiers[name].origin,
            hint="Give the tier another name.",
        )
    return tiers


def _drivers() -> set[str]:
    return {entry.name for entry in registry.installed(registry.DRIVERS)}


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
        tiers = _named_tiers()
        close = difflib.get_close_matches(name, tiers, n=1)
        meant = f"Did you mean the tier {close[0]!r}? " if close else ""
        raise UnknownPluginError(
            f"there is no directory {name!r}, and no driver or tier of this name",
            hint=f"{meant}Tiers: {', '.join(tiers) or 'none'}. {error.hint}",
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
