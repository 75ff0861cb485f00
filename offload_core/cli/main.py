"""The command `offload`: its commands, and what is said when the libraries it is made of are missing."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Run the command line."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        sys.stderr.write(f"offload: {error.name} is not installed. Run: pip install 'pulsar-offload[cli]'\n")
        raise SystemExit(1) from None
    # Else numba, where colorama is installed, resets the terminal's colours at the exit, behind what is for machines.
    os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
    make_app()()


def make_app() -> typer.Typer:
    """All commands."""
    import typer

    from offload_core.cli.configured import on_topics
    from offload_core.cli.looking.cost import cost
    from offload_core.cli.looking.doctor import doctor
    from offload_core.cli.looking.du import du
    from offload_core.cli.looking.history import history
    from offload_core.cli.looking.inspect import inspect
    from offload_core.cli.looking.ls import ls
    from offload_core.cli.looking.report import report
    from offload_core.cli.plugins.installed import plugins
    from offload_core.cli.plugins.new_driver import new
    from offload_core.cli.reading.cat import cat
    from offload_core.cli.reading.export import export
    from offload_core.cli.reading.schemas import pull, show
    from offload_core.cli.service.config import explain
    from offload_core.cli.service.config import show as show_settings
    from offload_core.cli.service.layout import layout
    from offload_core.cli.service.offloading import delete_hot_copies, offload
    from offload_core.cli.service.policies import add_topic_policies, namespace_policies
    from offload_core.cli.service.serve import serve
    from offload_core.cli.service.transactions import transactions
    from offload_core.cli.upkeep.delete import delete
    from offload_core.cli.upkeep.gc import gc
    from offload_core.cli.upkeep.recover import recover
    from offload_core.cli.upkeep.relocate import relocate
    from offload_core.cli.upkeep.repair import repair
    from offload_core.cli.upkeep.rollback import delete as delete_streaming
    from offload_core.cli.upkeep.rollback import list_objects, plan
    from offload_core.cli.upkeep.verify import verify

    app = typer.Typer(
        help="See and read what Apache Pulsar offloaded, without a broker.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    for command in (
        ls,
        du,
        inspect,
        history,
        verify,
        gc,
        delete,
        repair,
        relocate,
        recover,
        cost,
        report,
        cat,
        export,
        doctor,
        serve,
    ):
        app.command()(command)
    about_plugins = typer.Typer()
    about_plugins.callback(invoke_without_command=True)(plugins)
    about_plugins.command()(new)
    app.add_typer(about_plugins, name="plugins")
    about_schemas = typer.Typer(help="Topics' schemas, which are not in what is offloaded.")
    about_schemas.command()(pull)
    about_schemas.command()(show)
    app.add_typer(about_schemas, name="schemas")
    about_settings = typer.Typer(no_args_is_help=True, help="What is set up, and what holds of it.")
    about_settings.command("show")(show_settings)
    about_settings.command()(explain)
    app.add_typer(about_settings, name="config")
    app.add_typer(namespace_policies(), name="namespaces", no_args_is_help=True)
    about_topics = typer.Typer(
        no_args_is_help=True, help="Topics: offload them; what they say of offloading and retention."
    )
    about_topics.command("offload")(on_topics(offload))
    about_topics.command()(on_topics(delete_hot_copies))
    about_topics.command()(on_topics(layout))
    about_topics.command()(on_topics(transactions))
    add_topic_policies(about_topics)
    app.add_typer(about_topics, name="topics")
    about_rollback = typer.Typer(no_args_is_help=True, help="The way back from streaming offload.")
    about_rollback.command()(plan)
    about_rollback.command("list")(list_objects)
    about_rollback.command("delete")(delete_streaming)
    app.add_typer(about_rollback, name="rollback")
    return app
