"""`offload plugins` and what is below it."""

from __future__ import annotations

import typer

from offload_core.interfaces.cli.plugins.installed import plugins
from offload_core.interfaces.cli.plugins.new_driver import new


def plugins_group() -> typer.Typer:
    """The commands `offload plugins`."""
    app = typer.Typer()
    app.callback(invoke_without_command=True)(plugins)
    app.command()(new)
    return app
