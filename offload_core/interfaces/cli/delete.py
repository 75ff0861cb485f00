"""`offload delete`: delete what deleted topics left in a tier, with a receipt."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.command_options import (
    AllowEmpty,
    AsJson,
    ChangeOptions,
    Prefix,
    RecordOptions,
    TierOptions,
    command,
)
from offload_core.interfaces.cli.configured import ConfigFile, metadata_flags, open_service
from offload_core.interfaces.cli.gc import GarbageRecords, ScopeOptions, finish, show
from offload_core.interfaces.cli.ls import inventory
from offload_core.interfaces.cli.terminal import print_line, print_note, size
from offload_core.maintenance.gc import (
    CollectionSummary,
    Proof,
    Receipt,
    TopicDeletion,
    measure_clock,
    written_receipt,
)
from offload_core.metadata.catalogue import TierReader, TopicName, parse_topic
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.metadata.catalogue.survey import FoundLedger
from offload_core.metadata.catalogue.topics import (
    managed_ledger_of_topic,
    topic_of_managed_ledger,
    topic_selection,
)
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.writing.audit import AuditLog, Change, Deletion, read_audit_log
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import delete_managed_ledger
from offload_hooks.errors import OptionError, UnknownTopicError


@command(failed=2)
def delete(
    where: TierOptions,
    records: GarbageRecords,
    scope_options: ScopeOptions,
    changes: ChangeOptions,
    what: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC|NAMESPACE",
            help="A topic, or all partitions of one: tenant/namespace/topic; or a namespace: tenant/namespace.",
            show_default=False,
        ),
    ],
    managed_ledger: Annotated[
        bool,
        typer.Option(
            "--managed-ledger",
            help="Delete the managed ledgers themselves, with all copies of their ledgers, hot ones as well; the "
            "records are ours, and the service's configuration says where the tiers are.",
        ),
    ] = False,
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write what was deleted, and that nothing is left."),
    ] = None,
    allow_empty: AllowEmpty = False,
    config: ConfigFile = None,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Delete what deleted topics, one or all of a namespace, left in a tier; with a receipt.

    Topics that have a managed ledger are refused, unless --managed-ledger deletes that as well. Without --yes the
    command shows what it would delete. The exit code is 0 if nothing is left, 1 if something is, 2 if something
    failed, or if the topic is not known: neither an object nor a line in the audit log is there.

    Examples:
        offload delete s3://bucket/prefix acme/cold/gone --records zk://zk-1:2181/pulsar
    """
    url = records.require("only records tell whether a topic was deleted")
    if receipt is not None and not changes.yes:
        raise OptionError("a receipt lists deletions", expected="--yes with --receipt")
    scope = scope_options.scope(prefix, _wanted(what))
    with where.open() as tier:
        opener = records.opener(tier)
        assert opener is not None
        deletion = TopicDeletion(tier.store, opener, scope)
        about = {"what": what, "tier": tier.store.describe().location, "records": url}
        is_known = allow_empty or _was_deleted(what, changes.audit_log)
        if managed_ledger:
            live = deletion.live_topics()
            if not (live or is_known):
                raise _unknown("there is no managed ledger of this", what)
            topics = live if live or _is_namespace(what) else [parse_topic(what)]
            with opener() as opened_records:
                infos = opened_records.read(live)
        else:
            deletion.check_deleted()
        log = changes.open_log()
        if log is not None and scope_options.clock_skew is None and not managed_ledger:
            scope = scope.with_lead(measure_clock(tier.store, log, scope.folder))
            deletion = TopicDeletion(tier.store, opener, scope)
        with nullcontext() if receipt is None else written_receipt(receipt, about) as written:
            if managed_ledger:
                summary = CollectionSummary()
                if log is not None:
                    flags = metadata_flags(url, records.records_option)
                    _delete_managed_ledgers(topics, config, flags, log, written)
                _show_managed_ledgers(topics, infos, about | {"dry_run": not changes.yes}, as_json=as_json)
            else:
                summary, outcomes = deletion.delete(log)
                gone: set[tuple[TopicName | None, int]] = set()
                show(
                    _noted(outcomes, written, gone),
                    summary,
                    about | {"dry_run": not changes.yes},
                    as_json=as_json,
                )
                if gone and log is None and not (summary.failed or as_json):
                    _show_entries(tier, prefix, scope.is_chosen, gone)
            if not as_json:
                changes.show_next_step(topics if managed_ledger else summary.garbage)
            proof = None if log is None else deletion.prove()
            if not (managed_ledger or is_known or _was_there(summary, proof)):
                raise _unknown("there is neither a record nor an object of this", what)
            if written is not None and proof is not None:
                written.end(_of_proof(proof))
    if proof is not None:
        _say(proof)
    finish(summary)
    if (proof is not None and not proof.is_clean) or (managed_ledger and not changes.yes and topics):
        raise typer.Exit(1)


def _wanted(what: str) -> Callable[[TopicName | None], bool] | None:
    return topic_selection([], [what]) if _is_namespace(what) else topic_selection([parse_topic(what)])


def _is_namespace(what: str) -> bool:
    return "://" not in what and what.count("/") == 1


def _was_deleted(what: str, log: Path | None) -> bool:
    """True if an audit log has its deletion: deleting twice is no mistake."""
    if log is None or not log.exists():
        return False
    wants = _wanted(what)
    names = {
        line.managed_ledger
        for line in read_audit_log(log, wrong=lambda _: None)
        if line.managed_ledger is not None
    }
    return wants is not None and any(wants(topic_of_managed_ledger(name)) for name in names)


def _was_there(summary: CollectionSummary, proof: Proof | None) -> bool:
    """True if anything of it was found, or could not be read."""
    if proof is not None:
        return bool(summary.deleted or summary.failed) or not proof.is_clean
    counts = summary.garbage.total() + summary.kept.total() + summary.unknown.total()
    return bool(counts + summary.younger + summary.live + summary.failed)


def _unknown(why: str, what: str) -> UnknownTopicError:
    return UnknownTopicError(
        f"{why} {'namespace' if _is_namespace(what) else 'topic'}",
        found=what,
        hint="If it was deleted before, name the audit log of that, or give --allow-empty",
    )


def _show_entries(
    tier: TierReader,
    prefix: str,
    is_chosen: Callable[[TopicName | None], bool],
    gone: Collection[tuple[TopicName | None, int]],
) -> None:
    """Print how many entries the ledgers have that would be gone, by their indexes."""
    with inventory(tier, prefix, RecordOptions(), is_chosen) as found:
        entries = sum(
            each.ledger.entries or 0
            for each in found
            if isinstance(each, FoundLedger) and (each.topic, each.ledger.ledger_id) in gone
        )
    print_line(f"they have {count_text(entries, 'entry')} of {count_text(len(gone), 'ledger')}")


def _show_managed_ledgers(
    topics: Sequence[TopicName],
    infos: Mapping[TopicName, ManagedLedgerInfo],
    about: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    names = [str(topic) for topic in topics]
    if as_json:
        typer.echo(json.dumps({**about, "managed_ledgers": names}))
        return
    what = "would be deleted" if about["dry_run"] else "was deleted"
    for topic in topics:
        ledgers = infos[topic].ledgers if topic in infos else ()
        entries = sum(each.info.entries or 0 for each in ledgers)
        held = size(sum(each.info.size or 0 for each in ledgers))
        print_line(
            f"{topic}: its managed ledger {what}, with all copies of its {count_text(len(ledgers), 'ledger')}: "
            f"{count_text(entries, 'entry')}, {held} of payloads"
        )


def _delete_managed_ledgers(
    topics: Sequence[TopicName],
    config: Path | None,
    metadata: dict[str, Any],
    log: AuditLog,
    receipt: Receipt | None,
) -> None:
    configuration = load_configuration(config, metadata)
    with open_service(configuration) as (environment, _):
        for topic in topics:
            name = managed_ledger_of_topic(topic)
            delete_managed_ledger(replace(environment, audit=_Noting(log, receipt)), name)


class _Noting:
    """An audit log whose deletions are also in the receipt."""

    def __init__(self, log: AuditLog, receipt: Receipt | None) -> None:
        self._log, self._receipt = log, receipt

    def record(self, change: Deletion | Change) -> None:
        """See `AuditLog`."""
        self._log.record(change)
        if self._receipt is not None and isinstance(change, Deletion):
            self._receipt.add(
                {
                    "kind": change.copy,
                    "topic": change.managed_ledger,
                    "key": None,
                    "uuid": None if change.uuid is None else str(change.uuid),
                    "ledgers": [] if change.ledger_id is None else [change.ledger_id],
                    "size_bytes": change.size_bytes,
                }
            )


def _noted(
    outcomes: Iterator[Any], receipt: Receipt | None, gone: set[tuple[TopicName | None, int]]
) -> Iterator[Any]:
    """Note in the receipt what was deleted, and the ledgers of all that is found."""
    for outcome in outcomes:
        gone.update((outcome.garbage.topic, each) for each in outcome.garbage.ledger_ids)
        if receipt is not None and outcome.is_deleted:
            garbage = outcome.garbage
            receipt.add(
                {
                    "kind": garbage.kind.value,
                    "topic": None if garbage.topic is None else str(garbage.topic),
                    "key": garbage.key,
                    "uuid": None if garbage.uuid is None else str(garbage.uuid),
                    "ledgers": list(garbage.ledger_ids),
                    "size_bytes": garbage.size_bytes,
                }
            )
        yield outcome


def _of_proof(proof: Proof) -> dict[str, Any]:
    return {
        "is_clean": proof.is_clean,
        "left": list(proof.left),
        "left_count": proof.count,
        "unknown": proof.unknown,
    }


def _say(proof: Proof) -> None:
    if proof.is_clean:
        line = "a last listing found nothing of it"
    else:
        line = f"a last listing found {proof.count:,} objects and uploads of it"
        if proof.unknown:
            line += f", and {proof.unknown:,} that may be another cluster's, or could not be looked at"
    print_note(line)
