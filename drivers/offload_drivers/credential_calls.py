"""Credentials by a callable of the user's: the option `credentials` of the drivers for S3, GCS and Azure.

It is a callable without arguments, or its place as text, `module:function`, which crosses to any other process, and is
imported at its first use. It returns a mapping as obstore's credential providers do: the fields that the driver needs,
and `expires_at`, a datetime with a zone, or None for credentials that do not expire. No value and no text of an error
of the callable is shown: they may be secret.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from offload_hooks.errors import AccessDeniedError, OffloadError, OptionError, StoreUnavailableError

CredentialCall = Callable[[], Mapping[str, Any]]
CredentialOption = CredentialCall | str
"""A callable, or `module:function`; an empty text counts as not given."""

_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\Z")
_NEVER = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedCredentials:
    """What a callable returned: texts by field, and when they expire."""

    texts: Mapping[str, str] = field(repr=False)
    expires_at: datetime


def checked_call(given: object) -> CredentialOption:
    """The option `credentials`; empty if it is not given. Nothing is imported or called yet."""
    if given is None or given == "":
        return ""
    if isinstance(given, str) and _PLACE.match(given.strip()):
        return given.strip()
    if not callable(given):
        raise OptionError(
            "the option 'credentials' is no callable",
            expected="a callable, or its place as text, module:function",
        )
    return given


def fetch(given: CredentialOption, *names: str, optional: str = "") -> FetchedCredentials:
    """Call for credentials.

    Args:
        names: the fields that there must be. optional: one that there may be.

    Raises:
        OptionError: there is no such callable, or it returned something else. StoreUnavailableError: it could not
            connect to a server, or waited too long. AccessDeniedError: it raised any other error, but for those of
            `offload_hooks.errors`, which are handed on.
    """
    call = _imported(given) if isinstance(given, str) else given
    try:
        found = call()
    except OffloadError:
        raise
    except Exception as error:
        is_far = isinstance(error, OSError) and not isinstance(error, FileNotFoundError | PermissionError)
        kind = StoreUnavailableError if is_far else AccessDeniedError
        raise kind("the callable of the option 'credentials' failed", found=type(error).__name__) from None
    expected = f"a mapping with {', '.join([*names, 'expires_at'])}"
    if not isinstance(found, Mapping):
        raise _wrong("it returned no mapping", expected)
    texts: dict[str, Any] = {name: found.get(name) for name in (*names, optional) if found.get(name)}
    for name in names:
        if name not in texts:
            raise _wrong(f"it returned no {name!r}", expected)
    for name, text in texts.items():
        if not isinstance(text, str) or not text.isprintable():
            raise _wrong(f"the {name!r} that it returned is no text", expected)
    expires_at = found.get("expires_at")
    if expires_at is not None and (not isinstance(expires_at, datetime) or expires_at.tzinfo is None):
        raise _wrong("the 'expires_at' that it returned is no datetime with a zone", expected)
    return FetchedCredentials(texts=texts, expires_at=expires_at or _NEVER)


def _imported(place: str) -> CredentialCall:
    module, _, name = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # the module is the user's: it may raise anything
        raise _wrong(f"{place!r} cannot be imported", "module:function", type(error).__name__) from None
    if not callable(found):
        raise _wrong(f"{place!r} is no callable", "module:function")
    return found  # type: ignore[no-any-return]


def _wrong(fault: str, expected: str, found: str | None = None) -> OptionError:
    return OptionError(f"the option 'credentials': {fault}", expected=expected, found=found)
