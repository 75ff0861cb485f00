"""From what a user types to a target: a folder's path or URL, `iceberg:CATALOG/NAMESPACE.TABLE`, `delta:PATH`."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from offload_core.reading.export.model import Target
from offload_core.reading.export.parquet_target import ParquetTarget
from offload_core.storage.tier import open_store
from offload_hooks.errors import MissingExtraError, OptionError

_TABLES = {
    "iceberg": ("offload_core.reading.export.iceberg_target", "open_iceberg"),
    "delta": ("offload_core.reading.export.delta_target", "open_delta"),
}


def open_target(to: str | os.PathLike[str], options: Mapping[str, Any]) -> Target:
    """Open a target.

    Args:
        to: a path or URL whose scheme picks a driver, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:` before a path or
            URL of a table.
        options: of a folder those of its driver, of Iceberg the catalog's properties, of Delta its storage options.

    Raises:
        OptionError, UnknownPluginError, MissingExtraError.
    """
    text = os.fspath(to)
    kind, separator, rest = text.partition(":")
    if not separator or kind not in _TABLES:
        return ParquetTarget(open_store(text, **options))
    if not rest:
        raise OptionError(
            f"which {kind} table?", expected="iceberg:CATALOG/NAMESPACE.TABLE or delta:PATH", found=text
        )
    module, opener = _TABLES[kind]
    try:
        opened = getattr(importlib.import_module(module), opener)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"a target of {kind} needs the module {error.name!r}, which is not installed",
            hint=f"Install it: pip install 'pulsar-offload[{kind}]'",
        ) from error
    target: Target = opened(rest, {name: str(value) for name, value in options.items()})
    return target
