"""`offload verify`: check the integrity of objects and indexes, and compare them with records."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.command_options import (
    AllowEmpty,
    AsJson,
    ChangeOptions,
    ExecutorOptions,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
)
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import require_something
from offload_core.interfaces.cli.terminal import (
    cell,
    err,
    print_failure,
    print_line,
    print_streamed,
    print_table,
    size,
    table_of,
)
from offload_core.maintenance.inventory import TopicPatterns
from offload_core.maintenance.verify import (
    Code,
    Finding,
    Sealing,
    Severity,
    Summary,
    Verification,
    VerifiedObjects,
)
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError

REPORT_VERSION = 1
_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


class FailOn(enum.Enum):
    """The least that makes the command fail."""

    WARNING = "warning"
    ERROR = "error"


@command(failed=2)
def verify(
    where: TierOptions,
    records: RecordOptions,
    changes: ChangeOptions,
    executors: ExecutorOptions,
    deep: Annotated[
        bool, typer.Option("--deep", help="Every byte of data objects: blocks, entries, checksums, batches.")
    ] = False,
    by_checksums: Annotated[
        bool,
        typer.Option(
            "--by-checksums",
            help="With --deep: objects that have checksums are compared with these, and not decoded.",
        ),
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --deep: pass over what was sound the last time and has not changed."
        ),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="The exit code is 1 for findings that are as bad as this.")
    ] = FailOn.WARNING,
    limit: Annotated[int, typer.Option(min=0, help="Show at most so many findings; all are counted.")] = 1000,
    seal: Annotated[
        bool,
        typer.Option(
            "--seal",
            help="With --deep: write checksums beside sound objects that have none; a dry run without --yes.",
        ),
    ] = False,
    topic: Topics = None,
    allow_empty: AllowEmpty = False,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Verify a tier's objects and indexes, with --records what records name, with --deep every byte.

    The exit code is 0 if all is sound, 1 for findings or if --seal would write, 2 if something could not be verified or
    nothing is there.

    Examples:
        offload verify s3://bucket/prefix
        offload verify s3://bucket/prefix --records zk://zk-1:2181/pulsar
        offload verify s3://bucket/prefix --deep --processes
    """
    if not deep and (state is not None or seal or by_checksums):
        raise OptionError(
            "these options need every byte", expected="--deep with --seal, --state, --by-checksums"
        )
    if not deep and executors != ExecutorOptions():
        raise OptionError(
            "executors only read the bytes of objects",
            expected="--deep with --master, --workers, --processes",
        )
    if not seal and (changes.yes or changes.audit_log is not None):
        raise OptionError("only --seal writes anything", expected="--seal with --yes, --audit-log")
    audit = changes.open_log()
    with (
        where.open() as tier,
        _state(state, tier.store) as verified,
        executors.open() as executor,
        long_work("verifying", go_on=_GO_ON, logs=True) as work,
    ):
        verification = Verification(
            tier.store,
            prefix=prefix,
            takes=TopicPatterns(tuple(topic or ())),
            records=records.opener(tier),
            deep=deep,
            by_checksums=by_checksums,
            executor=executor if deep else None,
            state=verified,
            sealing=Sealing(tier.store, audit) if seal else None,
            listener=lambda now: work.update(f"{now.objects:,} objects"),
        )
        if as_json:
            given = records.records is not None
            about = {"tier": tier.store.describe().location, "deep": deep, "records": given}
            print_streamed(report_to_json(verification, about))
        else:
            _print(verification, limit, sealed="got checksums" if changes.yes else "would get checksums")
        summary = verification.summary
        if not allow_empty:
            require_something(summary.objects + summary.findings.total(), tier.store, prefix)
    for error in summary.failures:
        print_failure(f"not verified: {error}")
    if summary.failed:
        raise typer.Exit(2)
    would_seal = summary.sealed and not changes.yes
    if not as_json:
        changes.show_next_step(would_seal)
    if summary.count(Severity.ERROR) or (fail_on is FailOn.WARNING and summary.findings) or would_seal:
        raise typer.Exit(1)


_GO_ON = "With --deep --state FILE the next call passes over what was sound."


def _state(
    path: Path | None, store: Tier
) -> AbstractContextManager[VerifiedObjects] | AbstractContextManager[None]:
    return nullcontext() if path is None else VerifiedObjects(path, store.describe().location)


def _print(verification: Verification, limit: int, *, sealed: str) -> None:
    found: dict[Severity, list[Finding]] = {Severity.ERROR: [], Severity.WARNING: []}
    for finding in verification:
        if len(found[finding.severity]) < limit:
            found[finding.severity].append(finding)
    shown = [*found[Severity.ERROR], *found[Severity.WARNING]][:limit]
    for severity in found:
        of_one = sorted((each for each in shown if each.severity is severity), key=_place)
        for code, same in groupby(of_one, key=lambda finding: finding.code):
            _print_same(code, list(same))
    summary = verification.summary
    left = sum(summary.findings.values()) - len(shown)
    if left:
        err.print(f"{left} more findings; ask with --limit, or for all with --json", highlight=False)
    print_line(_said(summary, sealed))


def _place(finding: Finding) -> tuple[str, str, str, int]:
    return finding.code.value, finding.topic or "", finding.key or "", finding.offset or 0


def _print_same(code: Code, findings: Sequence[Finding]) -> None:
    """Print the findings of one kind, with what they mean and what helps."""
    style = _COLORS[code.severity]
    print_line(f"{code.severity.value}: {code.value}: {code.meaning}", style)
    rows = [
        {
            "topic": (finding.topic or "").removeprefix("persistent://"),
            "object": finding.key,
            "where": _where_in(finding),
            "expected": finding.expected,
            "found": finding.found,
        }
        for finding in findings
    ]
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    table = table_of(*columns)
    for row in rows:
        table.add_row(*(cell(row[name]) for name in columns))
    print_table(table, prose=("where", "expected", "found"))
    print_line(f"What to do: {code.helps}.")
    print_line("")


def _where_in(finding: Finding) -> str:
    """The place in an object in one line: ledger, block, entry and byte, as far as known."""
    places = {
        "ledger": finding.ledger_id,
        "block": finding.block,
        "entry": finding.entry_id,
        "byte": finding.offset,
    }
    return ", ".join(f"{name} {value}" for name, value in places.items() if value is not None)


def _said(summary: Summary, sealed: str) -> str:
    """All of it in a few sentences; `sealed` is what those did that are to have checksums."""
    parts = [f"{count_text(summary.objects, 'object')}, {size(summary.object_bytes)}"]
    if summary.topics:
        ledgers, topics = count_text(summary.ledgers, "ledger"), count_text(summary.topics, "topic")
        parts.append(f"{ledgers} of {topics} by their records")
    if summary.deep_objects or summary.skipped:
        before = f", {summary.compared_objects:,} by checksums" if summary.compared_objects else ""
        before += f", {summary.skipped:,} before" if summary.skipped else ""
        parts.append(
            f"{summary.deep_objects:,} read to the last byte{before}: {count_text(summary.entries, 'entry')}, "
            f"{summary.unchecked_entries:,} of them without a checksum"
        )
    if summary.with_checksums:
        parts.append(f"{summary.with_checksums:,} with checksums beside them")
    if summary.sealed:
        parts.append(f"{summary.sealed:,} {sealed}")
    if summary.stand_ins:
        parts.append(f"{summary.stand_ins:,} that stand in for copies that records name")
    if summary.unknown:
        objects = count_text(summary.unknown, "object")
        parts.append(f"{objects} that no record names, and that may be another cluster's")
    errors, warnings = summary.count(Severity.ERROR), summary.count(Severity.WARNING)
    verdict = "nothing is wrong" if summary.objects else "there is nothing to verify"
    if summary.findings:
        verdict = f"{count_text(errors, 'error')}, {count_text(warnings, 'warning')}"
    if summary.failed:
        verdict += f"; {count_text(summary.failed, 'object')} could not be verified"
    return "; ".join(parts) + f": {verdict}"


def report_to_json(verification: Verification, about: dict[str, Any]) -> dict[str, Any]:
    """Return the report for `print_streamed`: its findings may be many, and its summary is known after them."""
    summary = verification.summary
    return {
        "version": REPORT_VERSION,
        **about,
        "findings": (finding.to_json() for finding in verification),
        "failures": lambda: [str(error) for error in summary.failures],
        "summary": summary.to_json,
    }
