"""`offload serve`: the REST service with Pulsar's admin paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.configured import ConfigFile, Metadata, MetadataOptions, metadata_flags
from offload_core.interfaces.cli.shared import Debug, reported
from offload_core.writing.settings import load_configuration
from offload_hooks.errors import MissingExtraError


def serve(
    config: ConfigFile = None,
    metadata: Metadata = None,
    metadata_option: MetadataOptions = None,
    host: Annotated[str | None, typer.Option(help="The address; 127.0.0.1 unless it is set.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 for any.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="Speak TLS by this certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, if that is another file.")] = None,
    debug: Debug = False,
) -> None:
    """Answer Pulsar's admin requests for what is kept here, until SIGTERM or Ctrl-C."""
    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
    }
    with reported(debug):
        said = {"service": {name: value for name, value in flags.items() if value is not None}}
        configuration = load_configuration(config, metadata_flags(metadata, metadata_option) | said)
        try:
            from offload_core.interfaces.service import serve as run
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "the service needs a library that is not installed",
                found=error.name,
                hint="Run: pip install 'pulsar-offload[serve]'.",
            ) from error
        run(configuration)
