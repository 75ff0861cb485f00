"""The examination of a tier: its checks in order, each after those that it needs, and what was made removed again.

A check whose need has failed or was skipped is skipped. Whatever a check raises is its finding; only an interruption
(Ctrl-C) ends the examination, and then, too, everything is removed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from offload_core.doctor import measuring, reading, writing
from offload_core.doctor.advice import REPORT_DRIVER, advice
from offload_core.doctor.cleanup import clean_up
from offload_core.doctor.findings import CheckResult, Diagnosis, Finding, Status, failed, skipped
from offload_core.doctor.probe import Probe
from offload_core.tier import Tier
from offload_hooks.errors import OffloadError, OptionError

CLEANUP = "cleanup"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: its name, what makes it, and the checks that must have gone well before."""

    name: str
    make: Callable[[Probe], Finding]
    needs: tuple[str, ...] = ()


def writing_checks(size_bytes: int) -> tuple[Check, ...]:
    """The checks of a tier that may be written to; throughput is measured with so many bytes."""
    return (
        Check("reach", reading.reach),
        Check("put", writing.put, ("reach",)),
        Check("metadata", writing.metadata, ("put",)),
        Check("multipart", writing.multipart, ("reach",)),
        Check("invisible", writing.invisible, ("multipart",)),
        Check("commit", writing.commit, ("multipart",)),
        Check("head", writing.head, ("commit",)),
        Check("list", reading.listing, ("put", "commit")),
        Check("ranges", reading.ranges, ("commit",)),
        Check("past the end", reading.past_the_end, ("commit",)),
        Check("create-only", writing.create_only, ("put", "commit")),
        Check("uploads", writing.uploads, ("multipart",)),
        Check("clock", writing.clock, ("put",)),
        Check("throughput", partial(measuring.throughput, size_bytes=size_bytes), ("commit",)),
        Check("latency", measuring.latency, ("commit",)),
        Check("delete", writing.delete, ("put", "commit")),
        Check("delete again", writing.delete_again, ("delete",)),
        Check("leftovers", measuring.leftovers, ("reach",)),
    )


def reading_checks(size_bytes: int) -> tuple[Check, ...]:
    """The checks that write nothing; at most so many bytes are read to measure throughput."""
    return (
        Check("reach", reading.reach),
        Check("list", reading.choose, ("reach",)),
        Check("ranges", reading.ranges, ("list",)),
        Check("past the end", reading.past_the_end, ("list",)),
        Check("throughput", partial(measuring.download, size_bytes=size_bytes), ("list",)),
        Check("latency", measuring.latency, ("list",)),
        Check("leftovers", measuring.leftovers, ("reach",)),
    )


def examine(
    tier: Tier,
    *,
    read_only: bool = False,
    throughput_bytes: int = measuring.DEFAULT_BYTES,
    private: Callable[[], Finding] | None = None,
    on_begin: Callable[[str], None] = lambda _: None,
) -> Diagnosis:
    """Check what a tier can do and whether it keeps what the hooks promise. Raises nothing of the store's.

    Args:
        tier: the tier; other writers and readers do not disturb, and are not disturbed.
        read_only: write nothing; only what is there is listed and read.
        throughput_bytes: how many bytes throughput is measured with, at least 1.
        private: looks at files of this machine, see `exposure`; None to leave them.
        on_begin: is told each check's name before it is made.
    """
    if throughput_bytes < 1:
        raise OptionError("throughput is measured with at least one byte", found=throughput_bytes)
    checks = reading_checks(throughput_bytes) if read_only else writing_checks(throughput_bytes)
    if private is not None:
        checks = (*checks, Check("private files", lambda _: private()))
    probe = Probe(tier)
    results: list[CheckResult] = []
    interrupted = False
    try:
        for check in checks:
            on_begin(check.name)
            results.append(_result(check, probe, results))
    except KeyboardInterrupt:
        interrupted = True
    broken_off = checks[len(results) :]
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


def _result(check: Check, probe: Probe, earlier: list[CheckResult]) -> CheckResult:
    ended = {result.name: result.finding.status for result in earlier}
    begun = time.perf_counter()
    finding = _unmet(check, ended) or _found(check, probe)
    return CheckResult(name=check.name, finding=finding, seconds=time.perf_counter() - begun)


def _unmet(check: Check, ended: Mapping[str, Status]) -> Finding | None:
    for need in check.needs:
        if ended[need] in ("failed", "skipped"):
            how = "failed" if ended[need] == "failed" else "was skipped"
            return skipped(f"needs {need!r}, which {how}")
    return None


def _found(check: Check, probe: Probe) -> Finding:
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
