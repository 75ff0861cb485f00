"""What commands share that work on the metadata of a service: where it is, by flags, the environment or a file."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.shared import Debug, named, reported
from offload_core.writing.managed_ledger import Environment, open_environment
from offload_core.writing.settings import Configuration, PolicyStore, load_configuration, open_policies

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The TOML file of settings; else PULSAR_OFFLOAD_CONFIG names it."
    ),
]
Metadata = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The metadata store: sqlite:/var/lib/offload.db, zk://host:2181/offload."
    ),
]
MetadataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--metadata-option", metavar="NAME=VALUE", help="An option of the metadata store; may be given again."
    ),
]

_COMMON = {"config": ConfigFile, "metadata": Metadata, "metadata_option": MetadataOptions, "debug": Debug}


def metadata_flags(url: str | None, options: Sequence[str] | None) -> dict[str, Any]:
    """The flags of the metadata store, as a configuration takes them."""
    section: dict[str, Any] = {} if url is None else {"url": url}
    if options:
        section["options"] = named(options, "the metadata store")
    return {"metadata": section} if section else {}


def on_configuration(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `Configuration`: in its place its command line says where that is."""
    return _on(_configuration, 1, command)


def on_policies(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a `PolicyStore`: in its place its command line says where that is."""
    return _on(_policies, 1, command)


def on_topics(command: Callable[..., None]) -> Callable[..., None]:
    """As `on_policies`; the first parameters are an `Environment` and a `PolicyStore`."""
    return _on(_topics, 2, command)


@contextmanager
def _configuration(configuration: Configuration) -> Iterator[tuple[Configuration]]:
    yield (configuration,)


@contextmanager
def _policies(configuration: Configuration) -> Iterator[tuple[PolicyStore]]:
    with open_policies(configuration) as (_, policies):
        yield (policies,)


@contextmanager
def _topics(configuration: Configuration) -> Iterator[tuple[Environment, PolicyStore]]:
    with (
        open_policies(configuration) as (store, policies),
        open_environment(configuration, store, policies) as environment,
    ):
        yield environment, policies


def _on(
    opened: Callable[[Configuration], AbstractContextManager[tuple[object, ...]]],
    count: int,
    command: Callable[..., None],
) -> Callable[..., None]:
    own = list(inspect.signature(command, eval_str=True).parameters.values())[count:]
    common = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if name == "debug" else None, annotation=kind
        )
        for name, kind in _COMMON.items()
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        config, metadata, options, debug = (given.pop(name) for name in _COMMON)
        with (
            reported(debug),
            opened(load_configuration(config, metadata_flags(metadata, options))) as places,
        ):
            command(*places, **given)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    run.__signature__ = inspect.Signature([*parameters, *common])  # type: ignore[attr-defined]
    return run
