"""Crash matrices: every call of metadata, tier and hot tier is a point where it fails, is unknown, or ends the process.

A `Points` counts calls; the one that is chosen goes wrong. The wrappers here, between a program and its stores,
report each call to it, before and after.
"""

from functools import partial

from offload_core.storage.tier.chain import Layer
from offload_hooks import hookimpl
from offload_hooks.errors import LedgerFailedError, OutcomeUnknownError, StoreError, StoreUnavailableError

FAULTS = ("before", "after", "unknown before", "unknown after", "kill before", "kill after")
"""Faults before or after a call is made: an error, an unknown outcome, or the end of the process."""

_MAY_BE_UNKNOWN = ("put", "delete record", "writer ")


class Killed(BaseException):
    """The process is gone: nothing of ours catches it."""


class Points:
    """Counts calls; the one that is chosen goes wrong, and after a kill all others."""

    def __init__(self, at=0, fault="before"):
        self.calls = []
        self._at = at
        self._fault = fault
        self._dead = False

    def call(self, name, make):
        self.before(name)
        answer = make()
        self.after(name)
        return answer

    def before(self, name):
        if self._dead:
            raise Killed
        self.calls.append(name)
        if len(self.calls) == self._at and self._fault.endswith("before"):
            self._at = 0
            self._fail(name)

    def after(self, name):
        if self._dead:
            raise Killed
        if len(self.calls) == self._at:
            self._at = 0
            self._fail(name)

    def _fail(self, name):
        if self._fault.startswith("kill"):
            self._dead = True
            raise Killed
        unknown = self._fault.startswith("unknown") and name.startswith(_MAY_BE_UNKNOWN)
        raise (OutcomeUnknownError if unknown else StoreUnavailableError)(f"{name} as it was told")


class Turn(Points):
    """Has something else happen before the call of a number, or after it."""

    def __init__(self, at, happens, *, after=False):
        super().__init__()
        self._at_call, self._happens, self._after = at, happens, after

    def before(self, name):
        super().before(name)
        if not self._after:
            self._turn()

    def after(self, name):
        super().after(name)
        if self._after:
            self._turn()

    def _turn(self):
        if len(self.calls) == self._at_call:
            self._at_call = 0
            self._happens()


EACH_CALL = range(1, 1000)


def each_turn(make, run, happens, *, after=False, calls=EACH_CALL):
    """Run once for each of these calls, before or after which something else happens; yield the results."""
    for at in calls:
        world = make()
        happened = []
        points = Turn(at, lambda world=world, happened=happened: happened.append(happens(world)), after=after)
        result = run(world, points)
        if len(points.calls) < at:
            return
        if happened:  # after a call that failed nothing does
            yield world, result, happened[0]
    raise AssertionError("more calls than are expected")


class Metadata:
    """A metadata store whose calls are points."""

    def __init__(self, store, points):
        self._store = store
        self._points = points

    def __getattr__(self, name):
        return partial(self._call, name)

    def _call(self, name, *given):
        point = "delete record" if name == "delete" else name
        return self._points.call(point, lambda: getattr(self._store, name)(*given))

    def close(self):
        pass


def watched(points):
    """A layer whose calls are points."""
    return Layer(name="points", make=lambda _: Watch(points))


class Watch:
    """The layer that `watched` puts around a driver."""

    def __init__(self, points):
        self._points = points


def _point(hook):
    def wrapped(self):
        self._points.before(hook)
        answer = yield
        self._points.after(hook)
        return answer

    return hookimpl(wrapper=True)(wrapped)


for _hook in (
    "begin_data", "write_block", "commit_data", "abort_data", "write_index", "stat", "read_range", "delete",
    "list_uploads",
):  # fmt: skip
    setattr(Watch, _hook, _point(_hook))


class Hot:
    """A hot tier whose calls are points."""

    def __init__(self, store, points):
        self._store = store
        self._points = points

    def __getattr__(self, name):
        return partial(self._call, name)

    def _call(self, name, *given):
        return self._points.call(f"hot {name}", lambda: getattr(self._store, name)(*given))


class PointedLedgers(Hot):
    """A hot tier where the calls of writers and readers are points as well."""

    def _call(self, name, *given):
        made = super()._call(name, *given)
        if name == "create":
            return PointedWriter(made, self._points)
        return PointedReader(made, self._points) if name == "open" else made


class PointedReader:
    """A ledger's reader whose calls are points."""

    def __init__(self, reader, points):
        self._reader = reader
        self._points = points

    @property
    def ledger_id(self):
        """See `LedgerReader`."""
        return self._reader.ledger_id

    def status(self):
        """See `LedgerReader`."""
        return self._points.call("hot status", self._reader.status)

    def read(self, *given):
        """See `LedgerReader`."""
        return self._points.call("hot read", lambda: self._reader.read(*given))

    def size_before(self, entry_id):
        """See `SizedLedgerReader`."""
        return self._points.call("hot size_before", lambda: self._reader.size_before(entry_id))

    def close(self):
        """See `LedgerReader`."""


class PointedWriter:
    """A ledger's writer whose calls are points. One that fails after it acted, or is unknown, fails for ever."""

    def __init__(self, writer, points):
        self._writer = writer
        self._points = points
        self._failed = None

    @property
    def ledger_id(self):
        """See `LedgerWriter`."""
        return self._writer.ledger_id

    @property
    def status(self):
        """See `LedgerWriter`; of one that failed, what was acknowledged before."""
        return self._writer.status if self._failed is None else self._failed

    def __getattr__(self, name):
        return partial(self._call, name)

    def _call(self, name, *given):
        if self._failed is not None:
            raise LedgerFailedError("it failed before", ledger_id=self.ledger_id)
        before, acted = self._writer.status, False

        def act():
            nonlocal acted
            answer = getattr(self._writer, name)(*given)
            acted = True
            return answer

        try:
            return self._points.call(f"writer {name}", act)
        except StoreError as error:
            if not acted and not isinstance(error, OutcomeUnknownError):
                raise
            self._failed = before
            raise LedgerFailedError(f"{name} as it was told", ledger_id=self.ledger_id) from error


class PointedAudit:
    """An audit log whose calls are points."""

    def __init__(self, audit, points):
        self._audit, self._points = audit, points

    def record(self, deletion):
        """See `AuditLog`."""
        self._points.call("audit", lambda: self._audit.record(deletion))


# --- Stores that a scene leaves open, as a killed process does: they are closed when the test ends.
#
# A test of all crash points makes hundreds of scenes, and a system does not open any number of files.


_left = []


def left_open(store):
    """The store, which nothing closes."""
    _left.append(store)
    return store


def close_what_is_left():
    """Close all that were left open so far."""
    while _left:
        _left.pop().close()
