"""`offload verify`: whether what lies in a tier is right, by itself and by what records say of it."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.executors import Master, Processes, executing, looking
from offload_core.interfaces.cli.nothing_found import AllowEmpty, require_something
from offload_core.interfaces.cli.shared import (
    AsJson,
    AuditLogFile,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    Url,
    Yes,
    audit_of,
    cell,
    err,
    named,
    opened,
    out,
    printable,
    reported,
    size,
    table_of,
)
from offload_core.maintenance.verify import (
    Code,
    Finding,
    Sealing,
    Severity,
    Summary,
    Verification,
    VerifiedObjects,
)
from offload_core.metadata.catalogue import Records as RecordsOfTopics
from offload_core.metadata.catalogue import open_records
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError

REPORT_VERSION = 1
_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


class FailOn(enum.Enum):
    """The least that makes the command fail."""

    WARNING = "warning"
    ERROR = "error"


def verify(
    url: Url,
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
    yes: Yes = False,
    audit_log: AuditLogFile = None,
    master: Master = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --deep so many objects at once, one a core by default; else so many batches of objects, each "
            "with up to 128 requests under way.",
        ),
    ] = None,
    processes: Processes = False,
    allow_empty: AllowEmpty = False,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Verify what lies in a tier: objects and indexes, with --records what they say, with --deep every byte.

    The exit code is 0 if all is sound, 1 for findings or if --seal would write, 2 if something could not be verified or
    nothing is there.
    """
    with reported(debug, failed=2):
        if not deep and (state is not None or seal or by_checksums):
            raise OptionError(
                "this is for every byte of objects", expected="--deep with --seal, --state, --by-checksums"
            )
        if not seal and (yes or audit_log is not None):
            raise OptionError("only --seal writes anything", expected="--seal with --yes, --audit-log")
        audit = audit_of(yes, audit_log)
        with (
            opened(url, driver, option, layer) as tier,
            _state(state, tier.store) as verified,
            (executing if deep else looking)(master, workers, processes) as executor,
            err.status("") as status,
        ):
            verification = Verification(
                tier.store,
                prefix=prefix,
                records=_records(records, tier.store, tier.options, named(records_option, "the records")),
                deep=deep,
                by_checksums=by_checksums,
                executor=executor,
                state=verified,
                sealing=Sealing(tier.store, audit) if seal else None,
                listener=lambda now: status.update(_progress(now)),
            )
            if as_json:
                about = {"tier": tier.store.describe().location, "deep": deep, "records": records is not None}
                for part in report_parts(verification, about):
                    typer.echo(part, nl=False)
            else:
                _print(verification, limit, sealed="got checksums" if yes else "would get checksums")
            summary = verification.summary
            if not allow_empty:
                require_something(summary.objects + summary.findings.total(), tier.store, prefix)
    for error in summary.failures:
        err.print(printable(f"offload: not verified: {error}"), style="red", markup=False, soft_wrap=True)
    if summary.failed:
        raise typer.Exit(2)
    would_seal = summary.sealed and not yes
    if summary.count(Severity.ERROR) or (fail_on is FailOn.WARNING and summary.findings) or would_seal:
        raise typer.Exit(1)


def _records(
    source: str | None, store: Tier, options: dict[str, Any], own: dict[str, Any]
) -> Callable[[], AbstractContextManager[RecordsOfTopics]] | None:
    return None if source is None else partial(open_records, source, store, options, own)


def _state(
    path: Path | None, store: Tier
) -> AbstractContextManager[VerifiedObjects] | AbstractContextManager[None]:
    return nullcontext() if path is None else VerifiedObjects(path, store.describe().location)


def _progress(now: Summary) -> str:
    deep = f", {size(now.deep_bytes)} read" if now.deep_bytes else ""
    return f"verifying: {now.objects:,} objects{deep}"


def _print(verification: Verification, limit: int, *, sealed: str) -> None:
    table = table_of("finding", "where", "expected", "found")
    shown: set[Code] = set()
    for count, finding in enumerate(verification):
        if count < limit:
            name = cell(finding.code.value)
            name.stylize(_COLORS[finding.severity])
            table.add_row(name, cell(place_of(finding)), cell(finding.expected), cell(finding.found))
            shown.add(finding.code)
    if table.row_count:
        out.print(table)
    for code in sorted(shown, key=lambda each: each.value):
        out.print(f"{code.value}: {code.meaning}; {code.helps}", markup=False, highlight=False)
    summary = verification.summary
    left = sum(summary.findings.values()) - table.row_count
    if left:
        err.print(f"{left} more findings; ask with --limit, or for all with --json", highlight=False)
    out.print(_said(summary, sealed), markup=False, highlight=False, soft_wrap=True)


def place_of(finding: Finding) -> str:
    """Where something is wrong, in one line: what is known of topic, object, ledger, block, entry and byte."""
    parts = [
        finding.topic if finding.key is None else finding.key,
        *(
            f"{name} {value}"
            for name, value in (
                ("ledger", finding.ledger_id),
                ("block", finding.block),
                ("entry", finding.entry_id),
                ("byte", finding.offset),
            )
            if value is not None
        ),
    ]
    return ", ".join(part for part in parts if part is not None)


def _said(summary: Summary, sealed: str) -> str:
    """All of it in a few sentences; `sealed` is what those did that are to have checksums."""
    said = [f"{summary.objects:,} objects, {size(summary.object_bytes)}"]
    if summary.topics:
        said.append(f"{summary.ledgers:,} ledgers of {summary.topics:,} topics by their records")
    if summary.deep_objects or summary.skipped:
        before = f", {summary.compared_objects:,} by checksums" if summary.compared_objects else ""
        before += f", {summary.skipped:,} before" if summary.skipped else ""
        said.append(
            f"{summary.deep_objects:,} read to the last byte{before}: {summary.entries:,} entries, "
            f"{summary.unchecked_entries:,} of them without a checksum"
        )
    if summary.with_checksums:
        said.append(f"{summary.with_checksums:,} with checksums beside them")
    if summary.sealed:
        said.append(f"{summary.sealed:,} {sealed}")
    if summary.stand_ins:
        said.append(f"{summary.stand_ins:,} that stand in for copies that records name")
    if summary.unknown:
        said.append(f"{summary.unknown:,} objects that no record names, and that may be another cluster's")
    errors, warnings = summary.count(Severity.ERROR), summary.count(Severity.WARNING)
    verdict = "nothing is wrong" if summary.objects else "there is nothing to verify"
    if summary.findings:
        verdict = f"{errors:,} errors, {warnings:,} warnings"
    if summary.failed:
        verdict += f"; {summary.failed:,} objects could not be verified"
    return "; ".join(said) + f": {verdict}"


def report_parts(verification: Verification, about: dict[str, Any]) -> Iterator[str]:
    """The report as JSON, in pieces: its findings may be many."""
    head = json.dumps({"version": REPORT_VERSION, **about})
    yield f'{head[:-1]}, "findings": ['
    for count, finding in enumerate(verification):
        yield ("," if count else "") + "\n" + json.dumps(finding.to_json())
    summary = verification.summary
    rest = {
        "failures": [str(error) for error in summary.failures],
        "summary": summary.to_json(),
    }
    yield f"\n], {json.dumps(rest)[1:]}\n"
