"""`offload repair`: what is damaged is made right as far as its bytes allow, after a dry run that says how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.interfaces.cli.configured import ConfigFile, metadata_flags
from offload_core.interfaces.cli.executors import Master, Processes, Workers, executing
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
    err,
    named,
    opened,
    reported,
)
from offload_core.interfaces.cli.upkeep.repair_views import is_left, show
from offload_core.maintenance.repair import HotCopies, PlannedRepair, Repair, Repaired
from offload_core.metadata.catalogue import Records as RecordsOfTopics
from offload_core.metadata.catalogue import TierReader, open_records, parse_topic
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog
from offload_core.writing.managed_ledger import open_environment
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.settings import load_configuration, open_policies
from offload_hooks.errors import OffloadError, OptionError


def repair(
    url: Url,
    keys: Annotated[
        list[str] | None,
        typer.Argument(help="Only these objects, by the keys of data or index.", show_default=False),
    ] = None,
    ledger: Annotated[
        list[int] | None, typer.Option("--ledger", help="Only objects of this ledger; may be given again.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this topic, or all its partitions; may be given again."),
    ] = None,
    quarantine: Annotated[
        bool,
        typer.Option(
            "--quarantine",
            help="Move what was replaced, or cannot be saved, under quarantine/, unless --records names it. Without "
            "--records make sure that no broker reads it.",
        ),
    ] = False,
    switch_records: Annotated[
        bool,
        typer.Option(
            "--switch-records",
            help="Records that name a copy that is saved are to name the new one, and those that count wrongly are "
            "corrected; --records is the URL of a metadata store that is ours, not a broker's.",
        ),
    ] = False,
    offload_again: Annotated[
        bool,
        typer.Option(
            "--offload-again",
            help="Copies that are damaged or gone, and whose hot ones are there, are offloaded again; with "
            "--switch-records, and the service's configuration.",
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Records name a copy that lacks entries also while its ledger's hot copy has them; without it that "
            "hot copy is kept, and --offload-again is what mends it.",
        ),
    ] = False,
    config: ConfigFile = None,
    yes: Yes = False,
    audit_log: AuditLogFile = None,
    master: Master = None,
    workers: Workers = None,
    processes: Processes = False,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make indexes anew, save what damaged objects still hold into new ones, put the rest aside.

    Everything is verified first, to the last byte. Without --yes it is shown what would be done. The exit code is 0 if
    nothing is left to be done, 1 if something is, 2 if something failed.
    """
    with reported(debug, failed=2), ExitStack() as held:
        if switch_records and records is None:
            raise OptionError("where are the records that are to name new copies?", expected="--records URL")
        if offload_again and not switch_records:
            raise OptionError("records are to name what is offloaded again", expected="--switch-records")
        if accept_loss and not switch_records:
            raise OptionError("records are to name copies that lack entries", expected="--switch-records")
        log = audit_of(yes, audit_log)
        own = named(records_option, "the records")
        tier = held.enter_context(opened(url, driver, option, layer))
        ours = None
        if switch_records and records is not None:
            ours = ManagedLedgerRecords(held.enter_context(closing(open_metadata_store(records, own))))
        hot = None
        if offload_again or config is not None:
            hot = held.enter_context(_hot(config, metadata_flags(records, records_option)))
        work = Repair(
            tier.store,
            prefix=prefix,
            keys=[_key(each) for each in keys or ()],
            ledger_ids=ledger or (),
            topics=[parse_topic(each) for each in topic or ()],
            records=_opener(records, tier, own),
            ours=ours,
            hot=hot,
            offload_again=offload_again,
            accept_loss=accept_loss,
            quarantine=quarantine,
            executor=held.enter_context(executing(master, workers, processes)),
        )
        with err.status("verifying"):
            planned = list(work.plan())
        done: dict[int, Repaired | OffloadError] = {}
        try:
            for number, each in enumerate(planned):
                if log is not None and each.changes:
                    done[number] = _do(work, each, log)
        finally:
            show(planned, done if yes else None, as_json=as_json)
        if any(is_left(each, done.get(number)) for number, each in enumerate(planned)):
            raise typer.Exit(1)


def _do(work: Repair, planned: PlannedRepair, log: AuditLog) -> Repaired | OffloadError:
    """What was done of one; its error, which is not that of the others."""
    try:
        return work.do(planned, log)
    except OffloadError as error:
        return error.at(key=planned.key)


@contextmanager
def _hot(config: Path | None, metadata: dict[str, Any]) -> Iterator[HotCopies]:
    """The hot copies of the service that is configured so."""
    configuration = load_configuration(config, metadata)
    with (
        open_policies(configuration) as (store, policies),
        open_environment(configuration, store, policies) as environment,
    ):

        def offloader_of(tier: Tier, name: str) -> LedgerOffloader:
            holding = policies.resolve(topic_of_managed_ledger(name)).offload
            return LedgerOffloader(
                tier,
                max_block_bytes=holding.max_block_bytes,
                parts_in_flight=holding.max_threads,
                checksums=holding.writes_checksums,
            )

        yield HotCopies(environment=environment, offloader_of=offloader_of)


def _opener(
    source: str | None, tier: TierReader, own: dict[str, Any]
) -> Callable[[], AbstractContextManager[RecordsOfTopics]] | None:
    return None if source is None else lambda: open_records(source, tier.store, tier.options, own)


def _key(text: str) -> ObjectKey:
    key = parse_key(text)
    if key is None:
        raise OptionError("this is no key of an offloaded object", key=text)
    return key
