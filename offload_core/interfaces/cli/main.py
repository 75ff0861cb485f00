"""The command `offload`: its commands, and how it ends: an interruption and a missing library are one line."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from offload_core.interfaces.cli.interruption import INTERRUPTED, ends_soon, say_interrupted

if TYPE_CHECKING:
    from offload_core.interfaces.cli.command_help import CommandGroup


def main() -> None:
    """Run the command line."""
    before, sys.unraisablehook = sys.unraisablehook, _interrupt_again
    try:
        with ends_soon():
            _run()
    except KeyboardInterrupt:
        pass
    except SystemExit as ended:
        if ended.code != INTERRUPTED:
            raise
    else:
        return
    finally:
        sys.unraisablehook = before
    say_interrupted()
    raise SystemExit(INTERRUPTED)


def _interrupt_again(unraisable: Any) -> None:
    """Ctrl-C came where nothing can be raised, such as in a destructor, and would be lost: a moment later it can be."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it is not the user's second one
        main_thread = threading.main_thread().ident
        threading.Timer(0.01, signal.pthread_kill, [main_thread, signal.SIGINT]).start()
    else:
        sys.__unraisablehook__(unraisable)


def _run() -> None:
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        sys.stderr.write(f"offload: {error.name} is not installed. Run: pip install 'pulsar-offload[cli]'\n")
        raise SystemExit(1) from None
    # Else numba, where colorama is installed, resets the terminal's colours at the exit, after JSON.
    os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
    warnings.formatwarning = lambda message, *_, **__: str(message)  # without the line of a module that warns
    logging.captureWarnings(True)
    try:
        ended = make_app()(prog_name="offload", standalone_mode=False)
    except Exception as error:
        from offload_core.interfaces.cli.command_help import is_usage_error

        if is_usage_error(error):
            _print_usage_error(error)
            raise SystemExit(2) from None
        if "--debug" in sys.argv:
            raise
        from offload_core.interfaces.cli.terminal import print_unexpected

        print_unexpected(error)
        raise SystemExit(1) from None
    if ended:
        raise SystemExit(ended)


def _print_usage_error(error: Any) -> None:
    """Print a wrong option or name as the commands' own errors, or help where nothing was given."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{error.format_message()}\n")
        return
    context = getattr(error, "ctx", None)
    hint = f"\nRun {context.command_path} --help for its options." if context is not None else ""
    sys.stderr.write(f"offload: {error.format_message()}{hint}\n")


def make_app() -> CommandGroup:
    """All commands."""
    from offload_core.interfaces.cli.command_help import CommandGroup, root
    from offload_core.interfaces.cli.commands import COMMANDS, add_late, group_class

    app = CommandGroup(
        cls=group_class(COMMANDS),
        epilog="Options and examples of a command: offload help COMMAND, or offload COMMAND -h.",
        add_completion=True,
        pretty_exceptions_enable=False,
    )
    app.callback(no_args_is_help=True)(root)
    add_late(app, COMMANDS)
    return app
