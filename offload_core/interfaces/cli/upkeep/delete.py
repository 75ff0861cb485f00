"""`offload delete`: what is left in a tier of topics that were deleted, with a receipt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.configured import ConfigFile, metadata_flags
from offload_core.interfaces.cli.nothing_found import AllowEmpty
from offload_core.interfaces.cli.shared import (
    AsJson,
    AuditLogFile,
    Debug,
    Driver,
    Layers,
    Prefix,
    RecordsOptions,
    StorageOptions,
    Url,
    Yes,
    audit_of,
    err,
    named,
    opened,
    out,
    printable,
    reported,
)
from offload_core.interfaces.cli.upkeep.gc import (
    ClockSkew,
    Grace,
    NotShared,
    Records,
    ShortGrace,
    finish,
    scope_of,
    show,
)
from offload_core.maintenance.gc import (
    CollectionSummary,
    Proof,
    Receipt,
    TopicDeletion,
    measure_clock,
    written_receipt,
)
from offload_core.metadata.catalogue import Records as RecordsOfTopics
from offload_core.metadata.catalogue import TopicName, open_records, parse_topic
from offload_core.metadata.catalogue.topics import (
    managed_ledger_of_topic,
    topic_of_managed_ledger,
    topic_selection,
)
from offload_core.writing.audit import AuditLog, Change, Deletion, read_audit_log
from offload_core.writing.managed_ledger import delete_managed_ledger, open_environment
from offload_core.writing.settings import load_configuration, open_policies
from offload_hooks.errors import OptionError, UnknownTopicError


def delete(
    url: Url,
    what: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC|NAMESPACE",
            help="A topic, or all partitions of one: tenant/namespace/topic; or a namespace: tenant/namespace.",
            show_default=False,
        ),
    ],
    records: Records = None,
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
    yes: Yes = False,
    audit_log: AuditLogFile = None,
    allow_empty: AllowEmpty = False,
    grace: Grace = "1d",
    accept_short_grace: ShortGrace = False,
    clock_skew: ClockSkew = None,
    not_shared: NotShared = False,
    config: ConfigFile = None,
    prefix: Prefix = "",
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Delete what is left in a tier of a topic, or of a namespace's topics, that were deleted; with a receipt.

    Topics that have a managed ledger are refused, unless --managed-ledger deletes that as well. Without --yes it is
    shown what would go. The exit code is 0 if nothing is left, 1 if something is, 2 if something failed, or if nothing
    is known of it: there was none in the tier, and no line in the audit log.
    """
    with reported(debug, failed=2):
        if records is None:
            raise OptionError("whether a topic was deleted, only records tell", expected="--records URL")
        if receipt is not None and not yes:
            raise OptionError("a receipt is for what was deleted", expected="--yes with --receipt")
        given, own = records, named(records_option, "the records")
        scope = scope_of(prefix, _wanted(what), grace, accept_short_grace, clock_skew, not_shared)
        with opened(url, driver, option, layer) as tier:

            def open_them() -> AbstractContextManager[RecordsOfTopics]:
                return open_records(given, tier.store, tier.options, own)

            deletion = TopicDeletion(tier.store, open_them, scope)
            about = {"what": what, "tier": tier.store.describe().location, "records": given}
            is_known = allow_empty or _was_deleted(what, audit_log)
            if managed_ledger:
                live = deletion.live_topics()
                if not (live or is_known):
                    raise _unknown("there is no managed ledger of this", what)
                topics = live if live or _is_namespace(what) else [parse_topic(what)]
            else:
                deletion.check_deleted()
            log = audit_of(yes, audit_log)
            if log is not None and clock_skew is None and not managed_ledger:
                scope = scope.with_lead(measure_clock(tier.store, log, scope.folder))
                deletion = TopicDeletion(tier.store, open_them, scope)
            with nullcontext() if receipt is None else written_receipt(receipt, about) as written:
                if managed_ledger:
                    summary = CollectionSummary()
                    if log is not None:
                        flags = metadata_flags(given, records_option)
                        _delete_managed_ledgers(topics, config, flags, log, written)
                    _show_managed_ledgers(topics, about | {"dry_run": not yes}, as_json=as_json)
                else:
                    summary, outcomes = deletion.report() if log is None else deletion.delete(log)
                    show(_noted(outcomes, written), summary, about | {"dry_run": not yes}, as_json=as_json)
                proof = None if log is None else deletion.prove()
                if not (managed_ledger or is_known or _was_there(summary, proof)):
                    raise _unknown("there is neither a record nor an object of this", what)
                if written is not None and proof is not None:
                    written.end(_of_proof(proof))
        if proof is not None:
            _say(proof)
    finish(summary)
    if (proof is not None and not proof.is_clean) or (managed_ledger and not yes and topics):
        raise typer.Exit(1)


def _wanted(what: str) -> Callable[[TopicName | None], bool] | None:
    return topic_selection([], [what]) if _is_namespace(what) else topic_selection([parse_topic(what)])


def _is_namespace(what: str) -> bool:
    return "://" not in what and what.count("/") == 1


def _was_deleted(what: str, log: Path | None) -> bool:
    """Whether an audit log tells of it: what is deleted twice is no mistake."""
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
    """Whether anything was found of it, or could not be looked at."""
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


def _show_managed_ledgers(topics: Sequence[TopicName], about: dict[str, Any], *, as_json: bool) -> None:
    names = [str(topic) for topic in topics]
    if as_json:
        typer.echo(json.dumps({**about, "managed_ledgers": names}))
        return
    what = "would be deleted" if about["dry_run"] else "was deleted"
    for name in names:
        line = printable(f"{name}: its managed ledger {what}, with all copies of its ledgers")
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _delete_managed_ledgers(
    topics: Sequence[TopicName],
    config: Path | None,
    metadata: dict[str, Any],
    log: AuditLog,
    receipt: Receipt | None,
) -> None:
    configuration = load_configuration(config, metadata)
    with (
        open_policies(configuration) as (store, policies),
        open_environment(configuration, store, policies) as environment,
    ):
        for topic in topics:
            name = managed_ledger_of_topic(topic)
            delete_managed_ledger(replace(environment, audit=_Noting(log, receipt)), name)


class _Noting:
    """An audit log whose deletions stand in the receipt as well."""

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


def _noted(outcomes: Iterator[Any], receipt: Receipt | None) -> Iterator[Any]:
    for outcome in outcomes:
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
        said = "a last listing found nothing of it"
    else:
        said = f"a last listing found {proof.count:,} objects and uploads of it"
        if proof.unknown:
            said += f", and {proof.unknown:,} that may be another cluster's, or could not be looked at"
    err.print(said, highlight=False, soft_wrap=True)
