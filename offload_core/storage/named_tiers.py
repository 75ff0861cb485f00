"""Tiers by name, such as `prod`: from the user's file, and from the environment.

    [tiers.prod]                          # in ~/.config/pulsar-offload.toml
    url = "s3://bucket/prefix"            # or driver = "hdfs", whose options say where
    layers = ["retry:attempts=5"]
    options = {region = "eu-west-1"}

    PULSAR_OFFLOAD_TIER_PROD=s3://bucket/prefix
    PULSAR_OFFLOAD_TIER_PROD__REGION=eu-west-1

A tier that the environment names takes the place of the file's as a whole: no option of the file goes to another URL.
The file is refused if it holds secrets and any user of the machine can read it. Source: docs/configuration.md.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offload_hooks.errors import MissingExtraError, OptionError

TIER_VARIABLE = "PULSAR_OFFLOAD_TIER_"
"""What names of variables begin with that name a tier."""

SECRET_OPTION = re.compile("secret|password|token|credential|key|sas|digest|connection", re.IGNORECASE)
"""In the name of an option whose value may be secret."""

_FILE = "pulsar-offload.toml"
_NAME = re.compile(r"[a-z][a-z0-9-]*\Z")
_NAME_RULE = "lower-case letters, digits and dashes, a letter first"
_FIELDS = ("url", "driver", "layers", "options")
_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:|/|~/")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTier:
    """A tier that has a name.

    Attributes:
        url: its URL or path; None if `driver` and `options` say where it is.
        driver: the driver, instead of that of the URL's scheme.
        layers: layers around the driver, as text; None for the driver's own.
        origin: the file or the variable that names it.
    """

    name: str
    url: str | None = field(default=None, repr=False)
    driver: str | None = None
    layers: tuple[str, ...] | None = field(default=None, repr=False)
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    origin: str


def tiers_file() -> Path:
    """The user's file of tiers: `pulsar-offload.toml` in `XDG_CONFIG_HOME`, else in `~/.config`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / _FILE


def named_tiers() -> dict[str, NamedTier]:
    """All tiers that have names, sorted by them.

    Raises:
        OptionError: a file or a variable that makes no sense, with the line or the field; a file with secrets that any
            user can read.
    """
    found = {**_of_file(tiers_file()), **_of_environment(os.environ)}
    return {name: found[name] for name in sorted(found)}


def _of_file(path: Path) -> dict[str, NamedTier]:
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            "the file of tiers cannot be read", found=f"{path}: {type(error).__name__}"
        ) from None
    try:
        tables = _parsed(text)
    except ValueError as error:  # it names the line, and quotes no value
        raise OptionError(f"the file of tiers is no TOML: {path}", found=str(error)) from None
    for section in tables.keys() - {"tiers"}:
        raise _wrong(
            path,
            section,
            "there is no such section",
            "[tiers.NAME]",
            "A service's settings are another file, --config.",
        )
    tiers = tables.get("tiers", {})
    if not isinstance(tiers, dict):
        raise _wrong(path, "tiers", "it is no table", "[tiers.NAME]")
    found = {name: _checked(name, fields, path) for name, fields in tiers.items()}
    if mode & 0o006 and any(_holds_secret(tier.options) for tier in found.values()):
        raise OptionError(
            f"the file of tiers holds secrets, and every user of this machine can read or change it: {path}",
            hint=f"Run: chmod go-rwx {shlex.quote(str(path))}",
        )
    return found


def _parsed(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "a file of tiers needs a library that is not installed",
                found=error.name,
                hint="Run: pip install 'pulsar-offload[cli]'.",
            ) from error
    return tomllib.loads(text)


def _checked(name: str, fields: Any, path: Path) -> NamedTier:
    place = f"tiers.{name}"
    if not _NAME.match(name):
        raise _wrong(path, place, "it is no name of a tier", _NAME_RULE)
    if not isinstance(fields, dict):
        raise _wrong(path, place, "it is no table", '[tiers.NAME] with url = "…"')
    for unknown in fields.keys() - set(_FIELDS):
        raise _wrong(
            path,
            f"{place}.{unknown}",
            "there is no such field",
            ", ".join(_FIELDS),
            f"An option of the driver goes into [tiers.{name}.options].",
        )
    for text in ("url", "driver"):
        if not isinstance(fields.get(text, ""), str):
            raise _wrong(path, f"{place}.{text}", "it is no text", "a text")
    url, layers, options = fields.get("url"), fields.get("layers"), fields.get("options", {})
    if not url and not fields.get("driver"):
        raise _wrong(path, place, "it names no place", "url, or driver with options")
    if url and not _PLACE.match(url):
        raise _wrong(
            path,
            f"{place}.url",
            "it is neither a URL nor an absolute path",
            "s3://bucket/prefix or /data/tier",
        )
    if layers is not None and not (
        isinstance(layers, list) and all(isinstance(each, str) for each in layers)
    ):
        raise _wrong(path, f"{place}.layers", "it is no list of layers", '["retry:attempts=5"]')
    if not isinstance(options, dict):
        raise _wrong(path, f"{place}.options", "it is no table", f"[tiers.{name}.options]")
    return NamedTier(
        name=name,
        url=url or None,
        driver=fields.get("driver") or None,
        layers=None if layers is None else tuple(layers),
        options=options,
        origin=str(path),
    )


def _wrong(path: Path, place: str, fault: str, expected: str, hint: str | None = None) -> OptionError:
    return OptionError(
        f"the file of tiers is wrong at {place}: {fault} ({path})", expected=expected, hint=hint
    )


def _holds_secret(options: Mapping[str, object]) -> bool:
    return any(
        bool(SECRET_OPTION.search(name)) or (isinstance(value, Mapping) and _holds_secret(value))
        for name, value in options.items()
    )


def _of_environment(environ: Mapping[str, str]) -> dict[str, NamedTier]:
    urls: dict[str, str] = {}
    options: dict[str, dict[str, object]] = {}
    for variable, value in environ.items():
        if variable.startswith(TIER_VARIABLE):
            name, separator, option = variable.removeprefix(TIER_VARIABLE).partition("__")
            tier = name.lower().replace("_", "-")
            if not _NAME.match(tier):
                raise OptionError(f"the variable {variable} names no tier", expected=_NAME_RULE)
            if separator:
                options.setdefault(tier, {})[option.lower()] = value
            elif not _PLACE.match(value):
                raise OptionError(
                    f"the variable {variable} is neither a URL nor an absolute path",
                    expected="s3://bucket/prefix or /data/tier",
                )
            else:
                urls[tier] = value
    for tier in options.keys() - urls.keys():
        variable = TIER_VARIABLE + tier.upper().replace("-", "_")
        raise OptionError(
            f"the environment has options of the tier {tier!r}, but not where it is", expected=variable
        )
    return {
        tier: NamedTier(
            name=tier,
            url=url,
            options=options.get(tier, {}),
            origin=TIER_VARIABLE + tier.upper().replace("-", "_"),
        )
        for tier, url in urls.items()
    }
