"""Options as they arrive, which may all be text (from Spark, a command line, a file), to typed values."""

from __future__ import annotations

import math
from pathlib import Path

from offload_hooks.errors import OptionError


def as_flag(option: str, value: object) -> bool:
    """A truth value: a bool, or `true` or `false`."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise OptionError(f"the option {option!r} is neither true nor false", expected="true or false")


def as_count(option: str, value: object, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    number = value if isinstance(value, int) else as_number(value)
    if number is None or int(number) != number or number < least:
        raise OptionError(
            f"the option {option!r} is not a whole number that it may be", expected=f"{least} or more"
        )
    return int(number)


def as_seconds(option: str, value: object) -> float:
    """A time in seconds, 0 or more."""
    number = as_number(value)
    if number is None or number < 0:
        raise OptionError(f"the option {option!r} is not a number", expected="0 or more")
    return number


def as_number(value: object) -> float | None:
    """A finite number; None for what is none."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def as_rate(option: str, value: object) -> float | None:
    """How much in a second, more than 0; None, as an empty text, for no limit."""
    if value is None or value == "":
        return None
    rate = as_seconds(option, value)
    if rate <= 0:
        raise OptionError(f"the option {option!r} lets nothing through", expected="more than 0")
    return rate


def as_name(option: str, value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise OptionError(f"the option {option!r} is empty or no text")
    return value.strip()


def as_choice(option: str, value: object, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in choices:
        raise OptionError(f"the option {option!r} has a value that is none", expected=" or ".join(choices))
    return str(value)


def as_secret(option: str, value: str | None, file: str | None) -> str | None:
    """A secret text that is given itself, or by the file that holds it; None for neither. It is never shown.

    White space around it is taken away.
    """
    if value is not None and file is not None:
        raise OptionError(f"the options {option!r} and '{option}_file' exclude each other", hint="Give one.")
    if file is not None:
        try:
            value = Path(file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"the file of the option '{option}_file' cannot be read",
                found=f"{file}: {type(error).__name__}",
            ) from None
    if value is None:
        return None
    secret = value.strip()
    if not secret.isprintable() or not secret:
        raise OptionError(f"the option {option!r} is empty, or holds a control character")
    return secret
