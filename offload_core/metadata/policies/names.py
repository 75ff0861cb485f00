"""Parse policies as people, Pulsar and brokers write them.

Accepted are our names, Pulsar's, those of broker.conf that differ from them, and those of PIP-17 and PIP-76.

A value that a broker wrote is read even if it could not be set here:

    thresholds and lag below −1    −1, never
    sizes and threads too small    not set: no broker offloads by them
    more threads than the limit    the limit
    an empty text                  stays: it overrides levels above, and names nothing

Source: `OffloadPoliciesImpl` and the offloaders of Pulsar 4.0.8.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from offload_core.metadata.policies.offload_policies import (
    MAX_THREADS,
    MIN_BLOCK_BYTES,
    OffloadPolicies,
    RetentionPolicies,
)
from offload_hooks.errors import OptionError
from offload_hooks.json_text import INT64, shortened, whole_number

_MAPPINGS = {
    "managedLedgerOffloadExtraConfig": "extra_configurations",
    "managedLedgerOffloadFilterOption.": "filter_options",
}
"""Prefixes of names (the first is broker.conf's) of single values in a field's mapping."""

_MIB = 1 << 20


def _times(factor: int) -> Callable[[int], int]:
    """A threshold in a smaller unit; negative stays off."""
    return lambda number: number * factor if number >= 0 else -1


_OTHER_NAMES: Mapping[str, tuple[str, Callable[[int], int] | None]] = {
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": ("threshold_in_bytes", None),
    "managedLedgerOffloadDeletionLagMs": ("deletion_lag_in_millis", None),
    "managedLedgerDataReadPriority": ("offloaded_read_priority", None),
    "offloadSizeInMB": ("threshold_in_bytes", _times(_MIB)),
    "offloadTimeInMinutes": ("threshold_in_seconds", _times(60)),
    "maxSizePerOffloadSegmentMbytes": ("max_segment_size_in_bytes", _times(_MIB)),
    "maxOffloadSegmentRolloverTimeMinutes": ("max_segment_age_in_seconds", _times(60)),
}


def pulsar_names() -> dict[str, str]:
    """Our name of each field by Pulsar's."""
    return {str(field.alias): name for name, field in OffloadPolicies.model_fields.items()}


def parse_policies(given: Mapping[str, object], where: str = "offload policies") -> OffloadPolicies:
    """Parse policies by any of their names; None sets nothing. `where` names the level in errors.

    Raises:
        OptionError: an unknown name, one field by two names with two values, or a value that makes no sense.
    """
    known = {name: name for name in OffloadPolicies.model_fields} | pulsar_names()
    values: dict[str, Any] = {}
    named: dict[str, str] = {}
    single: dict[str, dict[str, str]] = {}
    for name, value in given.items():
        if value is None:
            continue
        prefix = next((each for each in _MAPPINGS if name.startswith(each)), None)
        if prefix is not None and name not in known:
            single.setdefault(_MAPPINGS[prefix], {})[name.removeprefix(prefix)] = str(value)
            continue
        field, convert = _OTHER_NAMES[name] if name in _OTHER_NAMES else (known.get(name), None)
        if field is None:
            raise _unknown(name, [*known, *_OTHER_NAMES], where)
        value = value if convert is None else convert(_whole_number(name, value, where))
        if field in values and values[field] != value:
            raise OptionError(
                f"{where}: {named[field]} and {name} are the same and differ",
                expected=_shown(field, values[field], f" by {named[field]}"),
                found=_shown(field, value, f" by {name}"),
            )
        values[field], named[field] = value, name
    for field, value in values.items():
        if value == "":
            raise OptionError(f"{where}: {named[field]} is empty", expected="a text, or nothing said")
    for field, options in single.items():
        whole = values.get(field, {})
        if isinstance(whole, Mapping):
            values[field] = {**whole, **options}
    return checked_policies(values, named, where)


def checked_policies(values: Mapping[str, Any], named: Mapping[str, str], where: str) -> OffloadPolicies:
    """Check values by our names (`OptionError`); `named` has the names for errors, else they are Pulsar's."""
    try:
        return OffloadPolicies(**values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = str(first["loc"][0])
        name = named.get(field) or next(alias for alias, ours in pulsar_names().items() if ours == field)
        raise OptionError(
            f"{where}: {name}: {first['msg']}", found=_shown(field, values.get(field))
        ) from None


def _whole_number(name: str, value: object, where: str) -> int:
    number = whole_number(str(value), INT64) if isinstance(value, int | str) else None
    if number is None:
        raise OptionError(
            f"{where}: {name} is no whole number",
            found=shortened(repr(value) if isinstance(value, str) else value),
        )
    return number


def _unknown(name: str, known: list[str], where: str) -> OptionError:
    close = difflib.get_close_matches(name, known, n=1)
    return OptionError(
        f"{where}: there is no policy {name!r}", hint=f"Did you mean {close[0]}?" if close else None
    )


def _shown(field: str, value: object, more: str = "") -> str | None:
    """A value for an error; None for one that may be secret."""
    may_be_secret = "credential" in field or field in _MAPPINGS.values()
    return None if value is None or may_be_secret else f"{value!r}{more}"


_NEVER = ("ThresholdInBytes", "ThresholdInSeconds", "DeletionLagInMillis")
_LEAST = {
    "MaxBlockSizeInBytes": MIN_BLOCK_BYTES,
    "ReadBufferSizeInBytes": 1,
    "Threads": 1,
    "PrefetchRounds": 1,
    "SegmentSizeInBytes": 1,
    "SegmentRolloverTimeInSeconds": 1,
}
_MOST = {"Threads": MAX_THREADS, "PrefetchRounds": MAX_THREADS}


def read_policies(written: Mapping[str, Any], where: str) -> OffloadPolicies:
    """Read policies from Pulsar's JSON, by Pulsar's names.

    Raises:
        OptionError: a value that no Pulsar writes; `where` names the level.
    """
    known = pulsar_names()
    return checked_policies({known[name]: _meant(name, value) for name, value in written.items()}, {}, where)


def read_retention(written: Mapping[str, Any]) -> RetentionPolicies:
    """Read retention from Pulsar's JSON: below −1 is −1, a missing limit is 0.

    Raises:
        ValidationError: a limit that is no number.
    """
    known = {str(field.alias) for field in RetentionPolicies.model_fields.values()}
    return RetentionPolicies(
        **{n: _at_least(-1, v) for n, v in written.items() if n in known and v is not None}
    )


def _meant(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: str(text) for key, text in value.items() if text is not None}
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if name.endswith(_NEVER):
        return _at_least(-1, value)
    least = next((least for end, least in _LEAST.items() if name.endswith(end)), None)
    most = next((most for end, most in _MOST.items() if name.endswith(end)), value)
    return None if least is not None and value < least else min(value, most)


def _at_least(least: int, value: Any) -> Any:
    return max(least, value) if isinstance(value, int) else value
