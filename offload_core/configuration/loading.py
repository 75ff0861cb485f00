"""Reads the tree of settings: flags count before the environment, this before the file, this before the defaults.

An environment variable is `PULSAR_OFFLOAD_` and the setting's place, with `__` between its parts, in any case:
`PULSAR_OFFLOAD_SERVICE__PORT`, `PULSAR_OFFLOAD_POLICIES__MAX_THREADS`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from offload_core.configuration.tree import Configuration
from offload_hooks.errors import MissingExtraError, OptionError

PREFIX = "PULSAR_OFFLOAD_"
FILE_VARIABLE = f"{PREFIX}CONFIG"
"""Names the file where no flag does."""


def load_configuration(
    file: str | os.PathLike[str] | None = None, flags: Mapping[str, Any] | None = None
) -> Configuration:
    """What is set.

    Args:
        file: a TOML file; None for the one that the environment names, if any.
        flags: settings as nested mappings, such as `{"service": {"port": 8443}}`.

    Raises:
        OptionError: a file that is none, a name that there is not, or a value that makes no sense, with its place.
    """
    try:
        from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "a configuration needs a library that is not installed",
            found=error.name,
            hint="Run: pip install 'pulsar-offload[cli]'.",
        ) from error
    chosen = file if file is not None else os.environ.get(FILE_VARIABLE)
    said = {} if chosen is None else _read(chosen)
    _check_environment()

    class Settings(BaseSettings, Configuration):  # type: ignore[misc]  # of two kinds of `model_config`
        """The tree, as the library reads environments for."""

    environment = EnvSettingsSource(Settings, env_prefix=PREFIX, env_nested_delimiter="__")
    try:
        return Configuration(**_merged(said, _merged(environment(), flags or {})))
    except SettingsError as error:
        raise OptionError("the environment makes no sense", found=error) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise OptionError(
            f"the configuration makes no sense at {place}", found=first["msg"].removeprefix("Value error, ")
        ) from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            both[name] = _merged(below[name], above[name])
    return both


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError("the configuration cannot be read", key=str(file), found=error.strerror) from None
    except ValueError as error:
        raise OptionError("the configuration is no TOML", key=str(file), found=error) from None


def _check_environment() -> None:
    known = {f"{PREFIX}{name}".upper() for name in Configuration.model_fields} | {FILE_VARIABLE}
    for name in os.environ:
        if name.upper().startswith(PREFIX) and name.upper().partition("__")[0] not in known:
            raise OptionError(
                "there is no such setting",
                expected=", ".join(sorted(each + "__…" for each in known)),
                found=name,
            )
