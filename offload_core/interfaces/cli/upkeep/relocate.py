"""`offload relocate`: cold copies go to another bucket, region, provider or format, and readers follow."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.interfaces.cli.amounts import parse_seconds, parse_size
from offload_core.interfaces.cli.executors import Master, Processes, executing
from offload_core.interfaces.cli.progress import byte_bar
from offload_core.interfaces.cli.shared import (
    AsJson,
    AuditLogFile,
    Debug,
    Driver,
    Layers,
    Namespaces,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    TopicNames,
    Url,
    Yes,
    audit_of,
    named,
    opened,
    out,
    reported,
    size,
)
from offload_core.interfaces.cli.upkeep.relocate_views import Relocated, show, show_copied
from offload_core.maintenance.relocate import (
    DEFAULT_PARALLEL,
    Mover,
    OldCopies,
    PlainCopy,
    PlainStatus,
    Wanted,
    make_moves,
    plan_topic,
    throttled,
)
from offload_core.maintenance.verify import VerifiedObjects
from offload_core.metadata.catalogue import TierReader, open_records, parse_topic
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import (
    TopicName,
    managed_ledger_of_topic,
    topic_of_managed_ledger,
    topic_selection,
)
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.records.relocations import MappingFile, read_mapping
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.clock import system_now_ms
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger.copy_registry import CopyRegistry, MappingRegistry, RecordRegistry
from offload_hooks.errors import OptionError, UnknownPluginError

_SHOWN_TOPICS = 10


class Format(enum.Enum):
    """What all copies are to be."""

    PIP17 = "pip17"
    STREAMING = "streaming"
    MAPFILE = "mapfile"


def relocate(
    url: Url,
    to: Annotated[str, typer.Option(metavar="URL", help="Where to: a URL or a path; perhaps the same tier.")],
    topic: TopicNames = None,
    namespace: Namespaces = None,
    ledger: Annotated[
        list[int] | None,
        typer.Option(help="Only this ledger, and segments with it; may be given again; needs --topic."),
    ] = None,
    to_format: Annotated[
        Format | None,
        typer.Option("--format", help="What all copies are to be; without it they stay as they are."),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Ledgers that follow each other become segments, some in each.")
    ] = False,
    segment_size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="With --merge: a segment ends with the ledger that reaches it."),
    ] = "1G",
    records: Records = None,
    records_option: RecordsOptions = None,
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The records are not ours to write, as a live Pulsar's: what moved is written here instead, and "
            "what is to be changed is shown.",
        ),
    ] = None,
    delete_source: Annotated[
        bool, typer.Option("--delete-source", help="Delete old copies that were replaced for the --grace.")
    ] = False,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long who has an old copy open may go on: 1h, 2d, 0.")
    ] = "1d",
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="At most so many bytes a second from or to each of the two tiers: 50M; processes have a share each.",
        ),
    ] = None,
    parallel: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "--parallel",
            min=1,
            help="So many copies at once; 4 by default, processes one a core.",
        ),
    ] = None,
    master: Master = None,
    processes: Processes = False,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Without --records: pass over what was verified the last time."),
    ] = None,
    yes: Yes = False,
    audit_log: AuditLogFile = None,
    prefix: Prefix = "",
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    to_driver: Annotated[str | None, typer.Option(help="As --driver, of --to.")] = None,
    to_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="As --option, of --to; may be given again.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Move cold copies to another tier, or another format: copied, verified, and then named by the records.

    Without --yes it is shown what would be moved. It can be broken off at any time, and goes on when it is called
    again. Without --records all objects are copied as they are, under the same keys. The exit code is 1 if something
    is left, or in a dry run would be done.
    """
    with reported(debug), ExitStack() as held:
        log = audit_of(yes, audit_log)
        topics = [parse_topic(each) for each in topic or ()]
        asked = topic_selection(topics, namespace or ())
        wants = asked or (lambda _: True)
        bytes_per_s = None if rate is None else parse_size(rate)
        source = held.enter_context(opened(url, driver, option, layer))
        target = held.enter_context(opened(to, to_driver, to_option, layer))
        if master is None and not processes:
            parallel = parallel or DEFAULT_PARALLEL
        executor = held.enter_context(executing(master if yes else None, parallel, processes))
        share = max(1, bytes_per_s // executor.processes) if bytes_per_s else bytes_per_s
        tiers = [held.enter_context(throttled(each.store, share)) for each in (source, target)]
        if records is None:
            if to_format or ledger or mapping or merge or delete_source:
                raise OptionError(
                    "without records objects are copied as they are, and none is deleted",
                    expected="--records with --format, --ledger, --merge, --mapping, --delete-source",
                )
            kept = None if state is None or not yes else _state(state, target.store)
            known = None if kept is None else held.enter_context(kept)
            _copy(
                PlainCopy(
                    tiers[0],
                    tiers[1],
                    prefix=prefix,
                    wants=wants,
                    audit=log,
                    state=known,
                    executor=executor,
                ),
                topics,
                as_json=as_json,
            )
            return
        if state is not None or prefix:
            raise OptionError(
                "records say what there is", expected="neither --state nor --prefix with --records"
            )
        if ledger and not topic:
            raise OptionError("whose ledgers?", expected="--topic with --ledger")
        if mapping is not None and delete_source:
            raise OptionError(
                "old copies are needed until a live Pulsar's records name the new ones",
                expected="--delete-source without --mapping",
            )
        wanted = Wanted(
            source=tier_record(source.store),
            target=tier_record(target.store),
            format=None if to_format is None else ObjectFormat(to_format.value),
            merge_bytes=parse_size(segment_size) if merge else None,
            ledger_ids=frozenset(ledger) if ledger else None,
        )
        grace_ms = 1000 * parse_seconds(grace)
        options = named(records_option, "the records")
        registry, recorded = held.enter_context(_opened(source, records, options, mapping, is_dry=not yes))
        _check_known(topics, recorded)
        infos = {
            each: registry.info(managed_ledger_of_topic(each)) for each in sorted(recorded) if wants(each)
        }
        for ledger_id in ledger or ():
            if all(info.ledger(ledger_id) is None for info in infos.values()):
                raise OptionError("the topic has no such ledger", ledger_id=ledger_id)
        done = Relocated(
            plans=[plan_topic(topic, info, wanted) for topic, info in infos.items()], is_dry=not yes
        )
        bar = held.enter_context(byte_bar(shown=not as_json))
        task = bar.add_task("moving", total=done.planned_bytes or None)
        mover = Mover(
            registry,
            tiers[0],
            tiers[1],
            log or _DryRun(),
            now_ms=system_now_ms,
            listener=lambda count: bar.advance(task, count),
        )
        try:
            if log is not None:
                elsewhere = executor if processes or master is not None else None
                threads = parallel or DEFAULT_PARALLEL
                done.outcomes.extend(make_moves(mover, done.plans, parallel=threads, executor=elsewhere))
            for each in infos if delete_source else ():
                if log is None:
                    found = OldCopies(topic=each, deleted=tuple(mover.replaced(each, grace_ms)))
                else:
                    found = mover.delete_replaced(each, grace_ms)
                done.old.append(found)
        finally:
            changes = () if mapping is None or not mapping.exists() else read_mapping(mapping).done
            show(done, changes, as_json=as_json)
        if done.is_left:
            raise typer.Exit(1)


def _check_known(topics: Sequence[TopicName], known: Collection[TopicName]) -> None:
    """Refuse topics that there is nothing of."""
    for topic in topics:
        if not any(topic.full in (each.full, each.base) for each in known):
            some = [str(each) for each in sorted(known)[:_SHOWN_TOPICS]]
            more = f" and {len(known) - len(some):,} others" if len(known) > len(some) else ""
            raise OptionError(
                "nothing is known of this topic",
                expected=f"{', '.join(some) or 'none'}{more}",
                found=str(topic),
            )


def _copy(copies: PlainCopy, topics: Sequence[TopicName], *, as_json: bool) -> None:
    """Copy objects as they are, and say what became of each pair."""
    counts: Counter[PlainStatus] = Counter()
    missing_bytes = 0
    seen: set[TopicName] = set()
    for result in copies:
        if topics and result.topic is not None:
            seen.add(result.topic)
        counts[result.status] += 1
        if result.status is PlainStatus.MISSING:
            missing_bytes += result.size_bytes
        show_copied(result, as_json=as_json)
    if not as_json:
        said = ", ".join(f"{count:,} {status.value}" for status, count in counts.items())
        out.print(f"{counts.total():,} pairs of objects{f': {said}' if said else ''}", highlight=False)
        if counts[PlainStatus.MISSING]:
            out.print(f"{size(missing_bytes)} would be copied; nothing was", highlight=False)
    _check_known(topics, seen)
    if counts.keys() - {PlainStatus.COPIED, PlainStatus.THERE}:
        raise typer.Exit(1)


def _state(path: Path, target: Tier) -> VerifiedObjects:
    return VerifiedObjects(path, target.describe().location)


class _DryRun:
    """The audit log of a dry run, which changes nothing."""

    def record(self, change: object) -> None:
        raise AssertionError(f"a dry run was about to change something: {change}")


@contextmanager
def _opened(
    source: TierReader, records: str, options: dict[str, Any], mapping: Path | None, *, is_dry: bool
) -> Iterator[tuple[CopyRegistry, list[TopicName]]]:
    """Where it is written down what moved, and the topics that there are."""
    if mapping is None:
        try:
            opened_store = open_metadata_store(records, options)
        except (OptionError, UnknownPluginError) as error:
            theirs = (
                "Records that are not ours to write, as files or a live Pulsar's, go with --mapping FILE."
            )
            raise OptionError(error.what, expected=error.expected, found=error.found, hint=theirs) from error
        with closing(opened_store) as store:
            ours = ManagedLedgerRecords(store)
            yield (
                RecordRegistry(ours, system_now_ms),
                [topic_of_managed_ledger(each) for each in ours.names()],
            )
        return
    with ExitStack() as held:
        found = held.enter_context(open_records(records, source.store, source.options, options))
        topics = found.topics()

        def read(name: str) -> ManagedLedgerInfo | None:
            topic = topic_of_managed_ledger(name)
            return found.read([topic]).get(topic)

        if is_dry:  # nothing is written, also not to a mapping that is there
            known = mapping.read_bytes() if mapping.exists() else b""
            mapping = Path(held.enter_context(TemporaryDirectory())) / "mapping"
            mapping.write_bytes(known)
        file = held.enter_context(MappingFile(mapping))
        yield MappingRegistry(file, read, system_now_ms), topics
