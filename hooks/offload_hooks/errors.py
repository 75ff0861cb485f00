"""The errors of pulsar-offload, in one tree.

One root, `OffloadError`. An error carries fields (which key, ledger, block, entry and byte offset; what was
expected and found; a hint) as well as a sentence. Errors that have a standard Python meaning are that, too:
"not found" is a `FileNotFoundError`, "denied" a `PermissionError`, malformed bytes a `ValueError`.
All of them survive pickling, so that they cross from a Spark executor to its driver unchanged. Credentials of URLs are
masked in all that they show (`shown_urls`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from offload_hooks.shown_urls import masked

OptionWords = Callable[[str, str | None], str]
"""An option as an interface writes it: of its name in Python, a driver's after `storage.`, and of a value for it."""

_OPTION = re.compile(r"\{([a-z][a-z0-9_.]*)(?:=(\w+))?\}")
_PLACE = ("key", "ledger_id", "block", "entry_id", "offset")
_LABELS = {"key": "object", "ledger_id": "ledger", "block": "block", "entry_id": "entry", "offset": "byte"}


class OffloadError(Exception):
    """A request to pulsar-offload that cannot be done.

    Args:
        what: the step that failed, one clause.
        key: the object's key in its tier.
        ledger_id: the ledger.
        block: the block's part number, from 1.
        entry_id: the entry.
        offset: the byte offset in the object (the index object if `key` names one).
        expected: the right value.
        found: the value found instead.
        hint: the next step for the user, one sentence. Options in it have braces: `{fail_on_data_loss=false}`, of a
            driver `{storage.region}`. They are shown as Python writes them, or an interface (`name_options`).
    """

    retryable: ClassVar[bool] = False
    """True if the same call may succeed when it is made again."""

    def __init__(
        self,
        what: str,
        *,
        key: str | None = None,
        ledger_id: int | None = None,
        block: int | None = None,
        entry_id: int | None = None,
        offset: int | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        what = masked(what)
        super().__init__(what)
        self.what = what
        self.key = key
        self.ledger_id = ledger_id
        self.block = block
        self.entry_id = entry_id
        self.offset = offset
        self.expected = expected
        self.found = masked(found) if isinstance(found, str) else found
        self._hint = hint

    @property
    def hint(self) -> str | None:
        """The next step for the user."""
        return self._hint and _with_options(self._hint, _option_of_python)

    @hint.setter
    def hint(self, hint: str | None) -> None:
        self._hint = hint

    def name_options(self, words: OptionWords) -> OffloadError:
        """Name the options in the hint as an interface does. Returns itself."""
        self._hint = self._hint and _with_options(self._hint, words)
        return self

    def fields(self) -> dict[str, Any]:
        """All fields that are set, by name, `what` first."""
        names = ("what", *_PLACE, "expected", "found", "hint")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def at(self, **place: Any) -> OffloadError:
        """Fill in the parts of the place that are not set yet. Returns itself."""
        for name, value in place.items():
            if name not in _PLACE:
                raise TypeError(f"an error has no place called {name!r}")
            if getattr(self, name) is None:
                setattr(self, name, value)
        return self

    def __str__(self) -> str:
        place = ", ".join(
            f"{_LABELS[name]} {masked(str(getattr(self, name)))}"
            for name in _PLACE
            if getattr(self, name) is not None
        )
        text = f"{self.what} ({place})" if place else self.what
        if self.expected is not None or self.found is not None:
            parts = [f"expected {self.expected}"] if self.expected is not None else []
            got = [f"found {self.found}"] if self.found is not None else []
            text += ": " + ", ".join(parts + got)
        return f"{text}. {self.hint}" if self.hint else text

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.fields().items())
        return f"{type(self).__name__}({masked(inner)})"

    def __reduce__(self) -> tuple[Any, ...]:
        hint = {} if self._hint is None else {"hint": self._hint}
        return (_rebuild, (type(self), self.fields() | hint))


@contextmanager
def placed(**place: Any) -> Iterator[None]:
    """Add the place to errors that leave this block; parts that are set stay."""
    try:
        yield
    except OffloadError as error:
        error.at(**place)
        raise


def _rebuild(kind: type[OffloadError], fields: dict[str, Any]) -> OffloadError:
    return kind(fields.pop("what"), **fields)


def _with_options(hint: str, words: OptionWords) -> str:
    return _OPTION.sub(lambda option: words(option[1], option[2]), hint)


def _option_of_python(name: str, value: str | None) -> str:
    value = {"true": "True", "false": "False"}.get(value or "", value and repr(value))
    return name.removeprefix("storage.") + (f"={value}" if value else "")


# --- asked for wrongly -------------------------------------------------------------------------


class OptionError(OffloadError, ValueError):
    """An option, argument or URL that makes no sense; the message names it."""


class InvalidKeyError(OptionError):
    """A key that would leave the tier's root, or that the store cannot name."""


# --- plugins -----------------------------------------------------------------------------------


class PluginError(OffloadError):
    """A plugin cannot be used."""


class UnknownPluginError(PluginError, LookupError):
    """No installed distribution offers a plugin of this name; the message lists those that are known."""


class BrokenPluginError(PluginError):
    """A plugin is installed but cannot be loaded, or breaks the contract of the hooks."""


class MissingExtraError(PluginError, ImportError):
    """A library that the plugin needs is not installed; the message has the install line."""


class VersionMismatchError(OffloadError, RuntimeError):
    """A worker in another place has other versions installed than the program that gives it work."""


# --- stores ------------------------------------------------------------------------------------


class StoreError(OffloadError):
    """A store failed to do a call."""


class ObjectNotFoundError(StoreError, FileNotFoundError):
    """No object of this key."""


class ObjectExistsError(StoreError, FileExistsError):
    """A create-only write found an object of this key."""


class AccessDeniedError(StoreError, PermissionError):
    """The store refused the credentials, or they do not cover this action."""


class VersionConflictError(StoreError):
    """A record has another version than expected: another process has changed it."""


class OutcomeUnknownError(StoreError):
    """It is not known if a record was changed: read it before anything that depends on it."""


class RangeError(StoreError, ValueError):
    """A range that the object does not have: negative, empty, or past its end; or an object larger than was wanted."""


class UploadError(StoreError):
    """An upload cannot be committed: its blocks overlap, leave holes, or do not belong to it."""


class StoreFullError(StoreError):
    """No room is left in the store."""


class LedgerFencedError(StoreError):
    """A ledger's writer was replaced: another process recovered the ledger, or deleted it."""


class LedgerClosedError(StoreError):
    """A ledger's writer, its store or its managed ledger was closed."""


class LedgerFailedError(StoreError):
    """A ledger's writer has failed: its last entries may be there or not, and the ledger must be recovered."""


class OwnershipLostError(StoreError):
    """A managed ledger that was open here was opened or deleted by another process; it is not changed here any more."""


class NoReadableCopyError(StoreError):
    """Neither copy of a ledger can be read, the hot nor the cold one; the message has both errors."""


class StoreUnavailableError(StoreError, ConnectionError):
    """The store does not answer, or answers that it cannot serve now.

    Args:
        what: what was attempted and went wrong.
        retry_after_s: the time to wait before the next try, as the store asks, in seconds.
        fields: as of every `OffloadError`.
    """

    retryable = True

    def __init__(self, what: str, *, retry_after_s: float | None = None, **fields: Any) -> None:
        super().__init__(what, **fields)
        self.retry_after_s = retry_after_s

    def fields(self) -> dict[str, Any]:
        """See `OffloadError`."""
        waiting = {} if self.retry_after_s is None else {"retry_after_s": self.retry_after_s}
        return super().fields() | waiting


class StoreUnreachableError(StoreUnavailableError):
    """No connection to the store was made: nothing listens at its address, or its name is not known."""


class StoreTimeoutError(StoreUnavailableError, TimeoutError):
    """The store did not answer in time; whether it acted is not known."""


# --- bytes -------------------------------------------------------------------------------------


class FormatError(OffloadError, ValueError):
    """Bytes that contradict their format."""


class BadMagicError(FormatError):
    """An object or block does not begin with its magic number."""


class BadLengthError(FormatError):
    """A length that is negative, too large, or contradicts another one."""


class TruncatedError(BadLengthError):
    """The bytes end before what they declare does."""


class EntryOrderError(FormatError):
    """Entry ids that are out of order, repeated or missing."""


class PaddingError(FormatError):
    """The bytes after a block's last entry are not the padding pattern."""


class ChecksumError(FormatError):
    """A checksum does not match the bytes that it covers."""


class IndexMismatchError(FormatError):
    """An index and a data object contradict each other."""


class MetadataError(FormatError):
    """A protobuf record that cannot be parsed, or lacks a required field."""


class DecompressionError(FormatError):
    """A payload that does not decompress to what it declares, or to more than is allowed."""


class SchemaError(FormatError):
    """A malformed definition of a schema, or two that are not compatible."""


class PayloadError(FormatError):
    """A message's payload that does not match its schema."""


class DecryptionError(FormatError):
    """A payload that cannot be decrypted: there is no key for it, or a wrong one, or its bytes were changed."""


class IncompleteMessageError(FormatError):
    """A chunked message some of whose chunks are missing."""


class UnsupportedVersionError(FormatError):
    """A format version newer than this program knows."""


# --- a thing that is missing ---------------------------------------------------------------------


class UnknownTopicError(OffloadError, LookupError):
    """No topic of this name has offloaded data here."""


class TopicTerminatedError(OffloadError):
    """A topic was terminated: it takes no more entries."""


class TopicDeletedError(OffloadError):
    """A topic is being deleted: it cannot be opened, and its deletion is to be ended first."""


class UnknownLedgerError(OffloadError, LookupError):
    """No readable copy of this ledger is here."""


class DataLossError(OffloadError):
    """Part of the range that was asked for has no readable copy."""


class AttemptError(OffloadError):
    """A step of an offload attempt contradicts the ledger's record, which has, say, another attempt's uuid."""


class LiveAttemptError(AttemptError):
    """Another process, or another thread of this one, offloads the ledger at the moment."""


class OffloadStoppedError(OffloadError):
    """An offload was ended before its time, because its managed ledger, its upkeep or its service is closed."""


class UnresolvedTransactionError(OffloadError):
    """The outcome of a transaction is not known where it is needed."""


class UnknownTransactionError(OffloadError, LookupError):
    """No transaction of this id is open in the topic."""
