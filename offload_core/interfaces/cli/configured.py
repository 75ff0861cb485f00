"""Options of a service's metadata: flags, the environment, or a file of settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.command_options import OptionGroup, command, named
from offload_core.writing.configuration import Configuration, load_configuration
from offload_core.writing.managed_ledger import Environment, open_environment
from offload_core.writing.policy_store import PolicyStore, open_policies

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The TOML file of settings; else PULSAR_OFFLOAD_CONFIG names it."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions(OptionGroup):
    """The settings of a service and its metadata store."""

    title = "The service"

    config: ConfigFile = None
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="The metadata store: sqlite:/var/lib/offload.db, zk://host:2181/offload."
        ),
    ] = None
    metadata_option: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata-option",
            metavar="NAME=VALUE",
            help="An option of the metadata store; may be given again.",
        ),
    ] = None

    def load(self, **flags: Any) -> Configuration:
        """Load the settings; `flags` are sections of them that come before the file's."""
        return load_configuration(self.config, metadata_flags(self.metadata, self.metadata_option) | flags)


def metadata_flags(url: str | None, options: Sequence[str] | None) -> dict[str, Any]:
    """Return the flags of the metadata store, as `load_configuration` takes them."""
    section: dict[str, Any] = {} if url is None else {"url": url}
    if options:
        section["options"] = named(options, "the metadata store")
    return {"metadata": section} if section else {}


@contextmanager
def open_service(configuration: Configuration) -> Iterator[tuple[Environment, PolicyStore]]:
    """Open the environment and the policies of a service that is configured like this."""
    with (
        open_policies(configuration) as (store, policies),
        open_environment(configuration, store, policies) as environment,
    ):
        yield environment, policies


def on_policies(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command; its first parameter is a `PolicyStore`."""
    return _on(_policies, 1, function)


def on_configuration(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command; its first parameter is a `Configuration`."""
    return _on(lambda configuration: nullcontext((configuration,)), 1, function)


def on_topics(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command; its first parameters are an `Environment` and a `PolicyStore`."""
    return _on(open_service, 2, function)


@contextmanager
def _policies(configuration: Configuration) -> Iterator[tuple[PolicyStore]]:
    with open_policies(configuration) as (_, policies):
        yield (policies,)


def _on(
    opened: Callable[[Configuration], AbstractContextManager[tuple[object, ...]]],
    count: int,
    function: Callable[..., None],
) -> Callable[..., None]:
    @functools.wraps(function)
    def run(*, service: ServiceOptions, **given: Any) -> None:
        with opened(service.load()) as places:
            function(*places, **given)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[count:]
    service = inspect.Parameter("service", inspect.Parameter.KEYWORD_ONLY, annotation=ServiceOptions)
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    run.__signature__ = inspect.Signature([*parameters, service])  # type: ignore[attr-defined]
    return command()(run)
