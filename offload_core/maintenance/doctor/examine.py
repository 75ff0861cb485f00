"""The examination of a tier: its checks in order, and the removal of all that it made.

Each check runs after those that it needs. One whose need has failed or was skipped is skipped. Whatever a check raises
is its finding; only an interruption (Ctrl-C) ends the examination, and then, too, everything is removed. Uploads are
dropped and objects deleted one by one, so that one failure does not keep the others: those that were made, and those
that the store lists under our prefix. What may still be there is reported as left behind.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from offload_core.maintenance.doctor import checks
from offload_core.maintenance.doctor.checks import TierProbe
from offload_core.maintenance.doctor.results import (
    REPORT_DRIVER,
    CheckFinding,
    CheckResult,
    Diagnosis,
    Status,
    advice,
    failed,
    ok,
    skipped,
)
from offload_core.storage.tier import Tier
from offload_hooks import Upload
from offload_hooks.errors import ObjectNotFoundError, OffloadError, OptionError

_LISTED = 1000

_Made = dict[str, Upload | str]
"""Uploads and keys, by the names that are printed."""


def clean_up(probe: TierProbe) -> tuple[CheckFinding, tuple[str, ...]]:
    """Remove what was made; return the finding and the names of what is left."""
    if not probe.keys:
        return skipped("nothing was made"), ()
    left: _Made = _named(probe.uploads) | {key: key for key in probe.keys}
    faults: dict[str, None] = {}
    try:
        left |= _listed_uploads(probe) | _listed_objects(probe)
        for name, made in list(left.items()):
            fault = _remove(probe, made)
            if fault is None:
                del left[name]
            else:
                faults[fault] = None
        left |= _listed_uploads(probe)
    except KeyboardInterrupt:
        faults["It was broken off."] = None
    if not left:
        return ok("everything that was made is gone"), ()
    by_hand = f"Remove by hand what begins with {probe.prefix!r}."
    return failed(f"{len(left)} left behind: {', '.join(left)}", " ".join([*faults, by_hand])), tuple(left)


def _named(uploads: dict[Upload, None]) -> _Made:
    return {f"{upload.key} (upload {upload.upload_id})": upload for upload in uploads}


def _listed_uploads(probe: TierProbe) -> _Made:
    if not probe.capabilities.stale_uploads:
        return {}
    with contextlib.suppress(Exception):  # those that are known are removed even so
        return _named({found.upload: None for found in probe.list_uploads(probe.prefix, limit=_LISTED)})
    return {}


def _listed_objects(probe: TierProbe) -> _Made:
    with contextlib.suppress(Exception):
        return {found.key: found.key for found in probe.list_objects(probe.prefix, limit=_LISTED)}
    return {}


def _remove(probe: TierProbe, made: Upload | str) -> str | None:
    fault = "The store says that it is gone, and has it still."
    try:
        if isinstance(made, Upload):
            probe.abort_data(made)
            return None
        probe.delete([made])
    except OffloadError as error:
        fault = advice(probe.description.name, probe.hook, error)
    except Exception as error:  # a driver's own code may raise anything; its text may hold a credential
        fault = f"The driver raised {type(error).__name__}. {REPORT_DRIVER}"
    return None if isinstance(made, str) and _is_gone(probe, made) else fault


def _is_gone(probe: TierProbe, key: str) -> bool:
    with contextlib.suppress(Exception):
        try:
            probe.stat(key)
        except ObjectNotFoundError:
            return True
    return False


CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, what makes it, and the checks that must have gone well before."""

    name: str
    make: Callable[[TierProbe], CheckFinding]
    needs: tuple[str, ...] = ()


def writing_checks(size_bytes: int) -> tuple[Check, ...]:
    """The checks of a tier that may be written to."""
    return (
        Check("reach", checks.reach),
        Check("put", checks.put, ("reach",)),
        Check("metadata", checks.metadata, ("put",)),
        Check("multipart", checks.multipart, ("reach",)),
        Check("invisible", checks.invisible, ("multipart",)),
        Check("commit", checks.commit, ("multipart",)),
        Check("head", checks.head, ("commit",)),
        Check("list", checks.listing, ("put", "commit")),
        Check("ranges", checks.ranges, ("commit",)),
        Check("past the end", checks.past_the_end, ("commit",)),
        Check("create-only", checks.create_only, ("put", "commit")),
        Check("uploads", checks.uploads, ("multipart",)),
        Check("clock", checks.clock, ("put",)),
        Check("throughput", partial(checks.throughput, size_bytes=size_bytes), ("commit",)),
        Check("latency", checks.latency, ("commit",)),
        Check("delete", checks.delete, ("put", "commit")),
        Check("delete again", checks.delete_again, ("delete",)),
        Check("leftovers", checks.leftovers, ("reach",)),
    )


def reading_checks(size_bytes: int) -> tuple[Check, ...]:
    """The checks that write nothing."""
    return (
        Check("reach", checks.reach),
        Check("list", checks.choose, ("reach",)),
        Check("ranges", checks.ranges, ("list",)),
        Check("past the end", checks.past_the_end, ("list",)),
        Check("throughput", partial(checks.download, size_bytes=size_bytes), ("list",)),
        Check("latency", checks.latency, ("list",)),
        Check("leftovers", checks.leftovers, ("reach",)),
    )


def examine(
    tier: Tier,
    *,
    read_only: bool = False,
    throughput_bytes: int = checks.DEFAULT_BYTES,
    private: Callable[[], CheckFinding] | None = None,
    on_begin: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Check what a tier can do and whether it keeps what the hooks promise. Raises nothing of the store's.

    Args:
        tier: the tier; other writers and readers do not disturb, and are not disturbed.
        read_only: write nothing; list and read existing objects only.
        throughput_bytes: bytes that are written and read to measure throughput, at least 1.
        private: checks files of this machine, see `exposure`; None to skip them.
        on_begin: called with each check's name before it is made.
    """
    if throughput_bytes < 1:
        raise OptionError("throughput is measured with at least one byte", found=throughput_bytes)
    ordered = reading_checks(throughput_bytes) if read_only else writing_checks(throughput_bytes)
    if private is not None:
        ordered = (*ordered, Check("private files", lambda _: private()))
    probe = TierProbe(tier)
    results: list[CheckResult] = []
    interrupted = False
    try:
        for check in ordered:
            on_begin(check.name)
            results.append(_result(check, probe, results))
    except KeyboardInterrupt:
        interrupted = True
    broken_off = ordered[len(results) :]
    results += [
        CheckResult(name=check.name, finding=skipped("the examination was broken off"), seconds=0.0)
        for check in broken_off
    ]
    left_behind: tuple[str, ...] = ()
    if not read_only:
        on_begin(CLEANUP)
        begun = time.perf_counter()
        finding, left_behind = clean_up(probe)
        results.append(CheckResult(name=CLEANUP, finding=finding, seconds=time.perf_counter() - begun))
    return Diagnosis(
        driver=probe.description.name,
        location=probe.description.location,
        read_only=read_only,
        prefix=probe.prefix,
        results=tuple(results),
        left_behind=left_behind,
        interrupted=interrupted,
    )


def _result(check: Check, probe: TierProbe, earlier: list[CheckResult]) -> CheckResult:
    ended = {result.name: result.finding.status for result in earlier}
    begun = time.perf_counter()
    finding = _unmet(check, ended) or _found(check, probe)
    return CheckResult(name=check.name, finding=finding, seconds=time.perf_counter() - begun)


def _unmet(check: Check, ended: Mapping[str, Status]) -> CheckFinding | None:
    for need in check.needs:
        if ended[need] in ("failed", "skipped"):
            how = "failed" if ended[need] == "failed" else "was skipped"
            return skipped(f"needs {need!r}, which {how}")
    return None


def _found(check: Check, probe: TierProbe) -> CheckFinding:
    try:
        return check.make(probe)
    except OffloadError as error:
        own_hint = f". {error.hint}" if error.hint else ""
        return failed(
            f"{probe.hook}: {str(error).removesuffix(own_hint)}",
            advice(probe.description.name, probe.hook, error),
        )
    except Exception as error:  # a driver's own code may raise anything; its text may hold a credential
        kind = type(error).__name__
        return failed(
            f"{probe.hook}: the driver raised {kind}, which is no error of the hooks", REPORT_DRIVER
        )
