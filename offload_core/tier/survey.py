"""What is installed and whether it works: one report for every plugin, for `offload plugins`.

Unlike the registry this imports every plugin, and turns whatever that raises into a report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Literal

from offload_core.tier import registry
from offload_core.tier.installed import installed
from offload_hooks.errors import BrokenPluginError, MissingExtraError

Status = Literal["ok", "broken", "missing extra"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """One installed plugin: who offers it and whether it can be used.

    `target` is the entry point's `module:attribute`; `problem` says what is wrong, None when `status` is
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
    reports = [_report(entry) for group in registry.GROUPS for entry in installed(group)]
    return sorted(reports, key=lambda r: (registry.GROUPS.index(r.group), r.name, r.distribution))


def _report(entry: EntryPoint) -> PluginReport:
    status: Status = "ok"
    problem = None
    try:
        registry.find(entry.group, entry.name)
        _CHECKS.get(entry.group, registry.load_factory_entry)(entry)
    except MissingExtraError as error:
        status, problem = "missing extra", str(error)
    except Exception as error:  # whatever a broken plugin may raise is what is asked for here
        status, problem = "broken", str(error) or type(error).__name__
    return PluginReport(
        group=entry.group,
        name=entry.name,
        target=f"{entry.module}:{entry.attr}",
        distribution=registry.distribution_of(entry),
        version=entry.dist.version if entry.dist is not None else "",
        status=status,
        problem=problem,
    )


def _check_scheme(entry: EntryPoint) -> None:
    registry.driver_of_entry(entry)
    driver = registry.load_driver_entry(entry)
    if not callable(getattr(driver, "options_from_url", None)):
        raise BrokenPluginError(
            f"the class {entry.value} serves the URL scheme {entry.name!r} but has no options_from_url"
        )


_CHECKS: dict[str, Callable[[EntryPoint], object]] = {
    registry.DRIVERS: registry.load_driver_entry,
    registry.URL_SCHEMES: _check_scheme,
}
