"""Exposure of private files: what other users of this machine can read or write.

Checked are the metadata database with the files that SQLite puts beside it, the hot tier, the audit log, the
configuration if it holds secrets, and files of keys and credentials that it names. Local tiers are checked for writing
only, because their option `mode` may let others read. Nothing is changed.
"""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from offload_core.maintenance.doctor.results import CheckFinding, ok, warning
from offload_core.metadata.stores.sqlite import parse_file
from offload_core.storage.named_tiers import SECRET_OPTION
from offload_core.writing.configuration import Configuration, in_clear
from offload_hooks.errors import OptionError
from offload_hooks.shown_urls import MASK

_BESIDE_DATABASE = ("", "-wal", "-shm", "-journal")
_FILE_OPTION = re.compile("(file|keytab)$", re.IGNORECASE)
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivatePlace:
    """A file or folder that other users should not get at.

    Attributes:
        noun: its name in findings.
        may_be_read: whether it is no fault that others read it.
    """

    noun: str
    path: Path
    may_be_read: bool = False


def private_places(configuration: Configuration, file: Path | None) -> list[PrivatePlace]:
    """The places that a configuration, read from this file, names; also those that are not there."""
    return list(_places(configuration, file))


def exposure(places: list[PrivatePlace]) -> CheckFinding:
    """Other users can neither read nor write private files."""
    found = list(dict.fromkeys(each for place in places for each in _exposed(place)))
    if not found:
        return ok(f"{len(places)} places, of which others can read or write none that they should not")
    seen = [f"{noun} {path} ({stat.filemode(mode)})" for noun, path, mode, _ in found[:_SHOWN]]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    fixes = [f"chmod {take} {shlex.quote(str(path))}" for _, path, _, take in found]
    return warning(f"others can get at {', '.join([*seen, *more])}", f"Run: {'; '.join(fixes)}")


def _places(configuration: Configuration, file: Path | None) -> Iterator[PrivatePlace]:
    url = configuration.metadata.url or ""
    if url.partition(":")[0].lower() == "sqlite":
        try:
            database = parse_file(url)
        except OptionError:  # opening it reports that
            database = ""
        for suffix in _BESIDE_DATABASE if database else ():
            yield PrivatePlace(noun="the metadata database", path=Path(database + suffix))
    live, hot_options = configuration.live, in_clear(configuration.hot_tier.options)
    tiers = [(tier.driver, in_clear(tier.options)) for tier in configuration.tiers]
    plain = [
        *map(in_clear, (configuration.metadata.options, live.options, live.admin_options, live.bookkeeper)),
        hot_options,
        *(options for _, options in tiers),
    ]
    if configuration.hot_tier.store == "embedded" and (hot := hot_options.get("path")):
        yield PrivatePlace(noun="the hot tier", path=Path(hot))
        for path in sorted(Path(hot).glob("*")):
            yield PrivatePlace(noun="a file of the hot tier", path=path)
    if configuration.audit_log.path is not None:
        yield PrivatePlace(noun="the audit log", path=configuration.audit_log.path)
    policies = _policy_options(configuration)
    if file is not None and _holds_secrets(configuration, [*plain, policies]):
        yield PrivatePlace(noun="the configuration, which holds secrets,", path=file)
    for named in [*plain, policies]:
        for name, value in named.items():
            if _FILE_OPTION.search(name):
                yield PrivatePlace(noun=f"the file of {name}", path=Path(value))
    if configuration.service.tls_key is not None:
        yield PrivatePlace(noun="the TLS key", path=configuration.service.tls_key)
    if (secret := _key_file(configuration)) is not None:
        yield PrivatePlace(noun="the tokens' secret key", path=secret)
    for driver, named in (*tiers, (configuration.policies.driver, policies)):
        if driver == "local" and "root" in named:
            yield PrivatePlace(noun="the tier", path=Path(named["root"]), may_be_read=True)


def _policy_options(configuration: Configuration) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in configuration.policies.to_json().items():
        if isinstance(value, Mapping):
            found |= {str(key): str(each) for key, each in value.items()}
        else:
            found[name] = str(value)
    return found


def _holds_secrets(configuration: Configuration, options: list[dict[str, str]]) -> bool:
    key = configuration.service.tokens.secret_key
    return (
        (key is not None and _key_file(configuration) is None)
        or MASK in str(configuration.policies.shown())
        or any(
            SECRET_OPTION.search(name) and not _FILE_OPTION.search(name)
            for each in options[:-1]
            for name in each
        )
    )


def _key_file(configuration: Configuration) -> Path | None:
    secret: SecretStr | None = configuration.service.tokens.secret_key
    text = "" if secret is None else secret.get_secret_value()
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    return (
        Path(text) if 0 < len(text) < 1024 and not text.startswith("data:") and Path(text).is_file() else None
    )


def _exposed(place: PrivatePlace) -> Iterator[tuple[str, Path, int, str]]:
    """Yield what of a place others can get at: noun, path, mode, and what `chmod` is to take away."""
    try:
        folder, found = place.path.parent.stat().st_mode, place.path.stat().st_mode
    except OSError:
        return
    bits = (0o022 if place.may_be_read else 0o066) & found
    reached = bits & ((0o066 if folder & 0o001 else 0) | (0o060 if folder & 0o010 else 0))
    if reached:
        take = "go-w" if place.may_be_read else "go-rwx"
        yield place.noun, place.path, found, take
    if folder & 0o022 and not folder & stat.S_ISVTX:
        yield f"the folder of {place.noun}", place.path.parent, folder, "go-w"
