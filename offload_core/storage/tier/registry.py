"""Plugins by name: finds drivers, layers and the other kinds of plugins among the installed distributions.

A plugin is an entry point of an installed distribution; entry points are read from metadata, and only the
requested one is imported. It refuses, with an error that names the remedy: a name that no distribution
offers, a name that two distributions offer, a plugin that cannot be imported, one whose libraries are
missing, one written for newer hooks, and options that the plugin does not take. What a plugin must
be is in `offload_hooks.specs`.

Reading entry points takes about 10 ms where a hundred distributions are installed, and opening a tier asks several
times; so they are read once for as long as nothing is installed. `survey` imports every plugin, for `offload plugins`.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, cast

from offload_hooks import HOOK_SPEC_VERSION
from offload_hooks.errors import (
    BrokenPluginError,
    MissingExtraError,
    OffloadError,
    OptionError,
    UnknownPluginError,
)
from offload_hooks.filters import OffloadFilter
from offload_hooks.key_providers import KeyProvider
from offload_hooks.ledger_stores import LedgerStore, WritableLedgerStore
from offload_hooks.metadata_stores import MetadataStore
from offload_hooks.schemas import SchemaProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSpec:
    """A plugin: its entry-point name and its options, whose values are in no repr."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsPlace:
    """Where managed ledgers' records are, for a process that is to read them again.

    Attributes:
        source, options: as `open_records` takes them.
        tier_options: those that the tier was opened with by name.
        folder: what the keys of its objects begin with.
        has_priorities: the tiered read priority of a topic is that of its policies, beside the records.
    """

    source: Any = field(repr=False)
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    tier_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    folder: str = ""
    has_priorities: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HotSpec:
    """A hot tier that is read beside a cold one.

    Attributes:
        store: the ledger store.
        records: where the other copies of a ledger are found, if one cannot be read; None to look for none.
    """

    store: PluginSpec
    records: RecordsPlace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """A driver's entry-point name, its options, and the layers over it, outermost first.

    Attributes:
        others: tiers from which it reads what it lacks.
        hot: from where ledgers are read that are not offloaded yet.
    """

    driver: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    layers: tuple[PluginSpec, ...] = ()
    others: tuple[TierSpec, ...] = ()
    hot: HotSpec | None = None


_Places = tuple[tuple[str, int], ...]


def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, of all distributions on `sys.path` as it is now, importing nothing."""
    return _read(group, tuple((place, _changed_ns(place)) for place in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, places: _Places) -> tuple[EntryPoint, ...]:
    del places  # installing and removing changes them, and so asks anew
    return tuple(entry_points(group=group))


def _changed_ns(place: str) -> int:
    """Time of the last change of a directory or an archive; 0 if it does not exist."""
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0


DRIVERS = "pulsar_offload.drivers"
URL_SCHEMES = "pulsar_offload.url_schemes"
LAYERS = "pulsar_offload.layers"
METADATA_STORES = "pulsar_offload.metadata_stores"
KEY_PROVIDERS = "pulsar_offload.key_providers"
SCHEMA_PROVIDERS = "pulsar_offload.schema_providers"
LEDGER_STORES = "pulsar_offload.ledger_stores"
FILTERS = "pulsar_offload.filters"
GROUPS = (
    DRIVERS,
    URL_SCHEMES,
    LAYERS,
    METADATA_STORES,
    LEDGER_STORES,
    FILTERS,
    SCHEMA_PROVIDERS,
    KEY_PROVIDERS,
)

NOUNS = {
    DRIVERS: "driver",
    URL_SCHEMES: "URL scheme",
    LAYERS: "layer",
    METADATA_STORES: "metadata store",
    LEDGER_STORES: "ledger store",
    FILTERS: "offload filter",
    SCHEMA_PROVIDERS: "schema provider",
    KEY_PROVIDERS: "key provider",
}


def load_driver(name: str) -> type[Any]:
    """Import the driver class of this name, and nothing else.

    Errors: `UnknownPluginError`, `MissingExtraError`, `BrokenPluginError`.
    """
    return load_driver_entry(find(DRIVERS, name))


def make_driver(name: str, options: Mapping[str, object]) -> object:
    """Import a driver and construct it; errors as `load_driver`, and `OptionError` for wrong options."""
    entry = find(DRIVERS, name)
    return _construct(entry, load_driver_entry(entry), (), options)


def driver_options_by_own_names(name: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """A driver's options by its own names, whatever alias or case they came in; errors as `make_driver`."""
    entry = find(DRIVERS, name)
    return _by_own_names(entry, load_driver_entry(entry), options)


def make_layer(name: str, rest: object, options: Mapping[str, object]) -> object:
    """Import a layer and construct it over `rest`; errors as `make_driver`."""
    return _make(LAYERS, name, options, rest)


def is_metadata_store(scheme: str) -> bool:
    """True if an installed distribution offers a metadata store for URLs of this scheme, importing nothing."""
    return any(entry.name == scheme.lower() for entry in installed(METADATA_STORES))


def make_metadata_store(scheme: str, url: str, options: Mapping[str, object]) -> MetadataStore:
    """Import the metadata store for URLs of this scheme and open it; errors as `make_driver`, and the store's own."""
    return cast("MetadataStore", _make(METADATA_STORES, scheme.lower(), options, url))


def make_ledger_store(name: str, options: Mapping[str, object]) -> LedgerStore:
    """Import a ledger store and construct it; errors as `make_driver`, and the store's own."""
    return cast("LedgerStore", _make(LEDGER_STORES, name, options))


def make_writable_ledger_store(name: str, options: Mapping[str, object]) -> WritableLedgerStore:
    """The same, of a store that this program can write to; `OptionError` for one that is only read."""
    store = make_ledger_store(name, options)
    if not callable(getattr(store, "create", None)):
        store.close()
        raise OptionError(
            f"the ledger store {name!r} is only read: nothing can be written to it",
            hint="A hot tier of our own is the store 'embedded', for instance.",
        )
    return cast("WritableLedgerStore", store)


def make_filter(name: str, options: Mapping[str, object]) -> OffloadFilter:
    """Import an offload filter and construct it; errors as `make_driver`."""
    return cast("OffloadFilter", _make_with(FILTERS, name, options, "open"))


def make_schema_provider(name: str, options: Mapping[str, object]) -> SchemaProvider:
    """Import a schema provider and construct it; errors as `make_driver`."""
    return cast("SchemaProvider", _make_with(SCHEMA_PROVIDERS, name, options, "history"))


def is_schema_provider(name: str) -> bool:
    """True if an installed distribution offers a schema provider of this name, importing nothing."""
    return any(entry.name == name for entry in installed(SCHEMA_PROVIDERS))


def make_key_provider(name: str, options: Mapping[str, object]) -> KeyProvider:
    """Import a key provider and construct it; errors as `make_driver`."""
    return cast("KeyProvider", _make_with(KEY_PROVIDERS, name, options, "decrypt_data_key"))


def _make_with(group: str, name: str, options: Mapping[str, object], method: str) -> object:
    made = _make(group, name, options)
    if not callable(getattr(made, method, None)):
        raise BrokenPluginError(f"{_who(find(group, name))} has no method {method!r}")
    return made


def _make(group: str, name: str, options: Mapping[str, object], *args: object) -> object:
    entry = find(group, name)
    return _construct(entry, load_factory_entry(entry), args, options)


def driver_of_scheme(scheme: str) -> str:
    """Name the driver that serves URLs of this scheme (without its colon), importing nothing.

    A scheme `a+b` that nothing offers is served by what offers `a`, which reads `b` from the URL.

    Errors: `UnknownPluginError`; `BrokenPluginError` when the scheme's class is not also offered as a driver.
    """
    name = scheme.lower()
    offered = {entry.name for entry in installed(URL_SCHEMES)}
    family = name.partition("+")[0]
    return driver_of_entry(find(URL_SCHEMES, family if name not in offered and family in offered else name))


def find(group: str, name: str) -> EntryPoint:
    """Find the one entry point of this name; two distributions that offer it are a `BrokenPluginError`."""
    offers = installed(group)
    found = [entry for entry in offers if entry.name == name]
    if not found:
        raise _unknown(group, name, sorted({entry.name for entry in offers}))
    if len(found) > 1:
        owners = " and ".join(sorted(distribution_of(entry) for entry in found))
        raise BrokenPluginError(
            f"the {NOUNS[group]} {name!r} is offered more than once, by {owners}",
            hint="Uninstall all but one of them.",
        )
    return found[0]


def distribution_of(entry: EntryPoint) -> str:
    """The name of the distribution that offers this entry point."""
    return entry.dist.name if entry.dist is not None else "an unnamed distribution"


def _who(entry: EntryPoint) -> str:
    return f"the {NOUNS[entry.group]} {entry.name!r} of {distribution_of(entry)}"


def driver_of_entry(scheme: EntryPoint) -> str:
    """Name the driver whose class a URL scheme's entry point names, importing nothing."""
    target = (scheme.module, scheme.attr)
    names = sorted(e.name for e in installed(DRIVERS) if (e.module, e.attr) == target)
    if not names:
        raise BrokenPluginError(
            f"the URL scheme {scheme.name!r} of {distribution_of(scheme)} names no driver",
            found=scheme.value,
            hint=f"It must offer the same class in the entry-point group {DRIVERS}.",
        )
    return scheme.name if scheme.name in names else min(names, key=lambda name: (len(name), name))


def load_driver_entry(entry: EntryPoint) -> type[Any]:
    """Import an entry point's driver class and check the version of the hooks that it was written for."""
    driver = _load(entry)
    who = _who(entry)
    if not inspect.isclass(driver):
        raise BrokenPluginError(f"{who} is not a class", found=entry.value)
    version = getattr(driver, "hook_spec_version", None)
    if type(version) is not int or version < 1:
        raise BrokenPluginError(
            f"{who} does not say which version of the hooks it implements",
            hint=f"Its class needs hook_spec_version = {HOOK_SPEC_VERSION}.",
        )
    if version > HOOK_SPEC_VERSION:
        raise BrokenPluginError(
            f"{who} is written for newer hooks than these",
            expected=f"hook_spec_version {HOOK_SPEC_VERSION} or less",
            found=version,
            hint="Upgrade pulsar-offload: pip install --upgrade pulsar-offload.",
        )
    return driver


def load_factory_entry(entry: EntryPoint) -> Callable[..., object]:
    """Import an entry point's factory: of anything but a driver."""
    factory = _load(entry)
    if not callable(factory):
        raise BrokenPluginError(f"{_who(entry)} is not a factory that can be called", found=entry.value)
    return factory  # type: ignore[no-any-return]


def _unknown(group: str, name: str, known: list[str]) -> UnknownPluginError:
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    return UnknownPluginError(
        f"no installed distribution offers the {NOUNS[group]} {name!r}",
        hint=f"{meant}Known: {', '.join(known) or 'none'}.",
    )


def _load(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except OffloadError:
        raise
    except (Exception, SystemExit) as error:  # import runs the plugin's code: it may raise anything
        raise _not_loaded(entry, error) from error


def _construct(
    entry: EntryPoint, make: Callable[..., object], args: tuple[object, ...], options: Mapping[str, object]
) -> object:
    options = _by_own_names(entry, make, options)
    _check_options(entry, make, args, options)
    try:
        return make(*args, **options)
    except OffloadError:
        raise
    except ModuleNotFoundError as error:
        raise _not_loaded(entry, error) from error
    except Exception as error:  # a plugin's own code; its text may quote an option
        raise BrokenPluginError(f"{_who(entry)} cannot be constructed", found=place_of(error)) from None


def place_of(error: Exception) -> str:
    """An error's type and where it was raised, without its text: that may quote a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _by_own_names(
    entry: EntryPoint, make: Callable[..., object], options: Mapping[str, object]
) -> Mapping[str, object]:
    """The options by the plugin's own names for them, whatever alias or case of letters they came in."""
    own = {name.casefold(): name for name in inspect.signature(make).parameters}
    aliases: Mapping[str, str] = getattr(make, "option_aliases", {})
    names = {alias.casefold(): name for alias, name in aliases.items()} | own
    pointless = {name.casefold(): value for name, value in getattr(make, "pointless_options", {}).items()}
    named: dict[str, object] = {}
    for given, value in _flat(options, names):
        if given.casefold() in pointless:
            _check_pointless(entry, given, value, pointless[given.casefold()])
            continue
        name = names.get(given.casefold(), given)
        if name in named and named[name] != value:
            raise OptionError(
                f"the {NOUNS[entry.group]} {entry.name!r} is given its option {name!r} twice, once as {given!r}",
                hint="Give it once.",
            )
        named[name] = value
    return named


def _flat(options: Mapping[str, object], names: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """The options, and in place of a mapping that is none of them its own: `client_kwargs.region_name`."""
    for name, value in options.items():
        if isinstance(value, Mapping) and name.casefold() not in names:
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def _check_pointless(entry: EntryPoint, name: str, value: object, only: str | None) -> None:
    if only is not None and str(value).strip().casefold() != only:
        raise OptionError(
            f"the {NOUNS[entry.group]} {entry.name!r} takes the option {name!r} only where it changes nothing",
            expected=only,
        )


def _check_options(
    entry: EntryPoint, make: Callable[..., object], args: tuple[object, ...], options: Mapping[str, object]
) -> None:
    taken = list(inspect.signature(make).parameters.values())[len(args) :]
    named = {p.name: p for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in taken)
    unknown = [] if takes_any else sorted(options.keys() - named.keys())
    missing = [n for n, p in named.items() if p.default is p.empty and n not in options]
    if not unknown and not missing:
        return
    faults = [f"takes no option {name!r}" for name in unknown] + [
        f"needs the option {name!r}" for name in missing
    ]
    close = difflib.get_close_matches(unknown[0], named, n=1) if unknown else []
    meant = f"Did you mean {close[0]!r}? " if close else ""
    listed = ", ".join(n if p.default is not p.empty else f"{n} (required)" for n, p in named.items())
    raise OptionError(
        f"the {NOUNS[entry.group]} {entry.name!r} {' and '.join(faults)}",
        hint=f"{meant}Its options: {listed or 'none'}.",
    )


def _not_loaded(entry: EntryPoint, error: BaseException) -> MissingExtraError | BrokenPluginError:
    who = _who(entry)
    if isinstance(error, ModuleNotFoundError) and error.name and _is_missing_library(entry, error.name):
        return MissingExtraError(
            f"{who} needs the module {error.name!r}, which is not installed",
            hint=f"Install it: {_install_line(entry, error.name)}",
        )
    return BrokenPluginError(f"{who} cannot be loaded", found=f"{type(error).__name__}: {error}")


def _is_missing_library(entry: EntryPoint, module: str) -> bool:
    top = module.partition(".")[0]
    if top == entry.module.partition(".")[0]:
        return False
    spec = importlib.util.find_spec(top)
    # A namespace package (`google`) is there as soon as one distribution of many is installed.
    return spec is None or spec.origin is None


def _install_line(entry: EntryPoint, module: str) -> str:
    if entry.dist is not None:
        declared = re.search(r"\[(.*)\]", entry.value)
        extras = [extra.strip() for extra in declared[1].split(",")] if declared else []
        offered = entry.dist.metadata.get_all("Provides-Extra") or []
        extras = extras or [extra for extra in offered if _normal(extra) == _normal(entry.name)]
        if extras:
            return f"pip install '{entry.dist.name}[{','.join(extras)}]'"
    return f"pip install {module.partition('.')[0]}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


Status = Literal["ok", "broken", "missing extra"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """An installed plugin: its distribution, and whether it can be used.

    `target` is the entry point's `module:attribute`; `problem` is the error, None when `status` is
    `ok`.
    """

    group: str
    name: str
    target: str
    distribution: str
    version: str
    status: Status
    problem: str | None


def survey() -> list[PluginReport]:
    """Import every installed plugin and report on each, by group, name and distribution. Raises nothing."""
    reports = [_report(entry) for group in GROUPS for entry in installed(group)]
    return sorted(reports, key=lambda r: (GROUPS.index(r.group), r.name, r.distribution))


def _report(entry: EntryPoint) -> PluginReport:
    status: Status = "ok"
    problem = None
    try:
        find(entry.group, entry.name)
        _CHECKS.get(entry.group, load_factory_entry)(entry)
    except MissingExtraError as error:
        status, problem = "missing extra", str(error)
    except Exception as error:  # any error of a broken plugin is reported
        status, problem = "broken", str(error) or type(error).__name__
    return PluginReport(
        group=entry.group,
        name=entry.name,
        target=f"{entry.module}:{entry.attr}",
        distribution=distribution_of(entry),
        version=entry.dist.version if entry.dist is not None else "",
        status=status,
        problem=problem,
    )


def _check_scheme(entry: EntryPoint) -> None:
    driver_of_entry(entry)
    driver = load_driver_entry(entry)
    if not callable(getattr(driver, "options_from_url", None)):
        raise BrokenPluginError(
            f"the class {entry.value} serves the URL scheme {entry.name!r} but has no options_from_url"
        )


_CHECKS: dict[str, Callable[[EntryPoint], object]] = {DRIVERS: load_driver_entry, URL_SCHEMES: _check_scheme}
