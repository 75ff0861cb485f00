"""`offload topics` and what is below it."""

from __future__ import annotations

import typer

from offload_core.interfaces.cli.configured import on_topics
from offload_core.interfaces.cli.service.layout import layout
from offload_core.interfaces.cli.service.offloading import delete_hot_copies, offload
from offload_core.interfaces.cli.service.policies import add_topic_policies
from offload_core.interfaces.cli.service.transactions import transactions


def topics_group() -> typer.Typer:
    """The commands `offload topics`."""
    app = typer.Typer(
        no_args_is_help=True, help="Topics: offload them; what they say of offloading and retention."
    )
    app.command("offload")(on_topics(offload))
    app.command()(on_topics(delete_hot_copies))
    app.command()(on_topics(layout))
    app.command()(on_topics(transactions))
    add_topic_policies(app)
    return app
