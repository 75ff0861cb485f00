"""`offload relocate`: cold copies go to another bucket, region, provider or format, and readers follow."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Annotated, Any

import typer

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.interfaces.cli.command_options import (
    AsJson,
    ChangeOptions,
    ExecutorOptions,
    Namespaces,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
    parse_seconds,
    parse_size,
)
from offload_core.interfaces.cli.configured import ConfigFile
from offload_core.interfaces.cli.given_copies import TopicCopies, give_copies, open_live
from offload_core.interfaces.cli.long_work import LongWork, long_work
from offload_core.interfaces.cli.nothing_found import topic_filter
from offload_core.interfaces.cli.relocation_report import Relocated, show_copied, show_relocated
from offload_core.interfaces.cli.terminal import duration, print_line, size
from offload_core.maintenance.inventory import TopicPatterns
from offload_core.maintenance.live import LiveReplacements
from offload_core.maintenance.live.live_copies import check_readable
from offload_core.maintenance.relocate import (
    DEFAULT_PARALLEL,
    Mover,
    OldCopies,
    Outcome,
    PlainCopy,
    PlainStatus,
    Wanted,
    make_moves,
    plan_topic,
    throttled,
)
from offload_core.maintenance.relocate.live_moves import plan_live_topic
from offload_core.maintenance.verify import VerifiedObjects
from offload_core.metadata.catalogue import TierReader, TopicName, open_records
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.metadata.records.relocations import MappingFile, read_mapping
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.clock import system_now_ms
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger.copy_registry import CopyRegistry, MappingRegistry, RecordRegistry
from offload_hooks.errors import OffloadError, OptionError, UnknownPluginError, UnknownTopicError

_SHOWN_TOPICS = 10


class CopyFilterName(enum.Enum):
    """Filter that copies go through."""

    TRANSACTIONS = "transactions"


class CopyFormat(enum.Enum):
    """Format of the new copies."""

    PIP17 = "pip17"
    STREAMING = "streaming"
    MAPFILE = "mapfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RelocationExecutors(ExecutorOptions):
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "--parallel",
            min=1,
            help="So many copies at once; 4 by default, processes one a core.",
        ),
    ] = None


@command()
def relocate(
    where: TierOptions,
    records: RecordOptions,
    changes: ChangeOptions,
    executors: _RelocationExecutors,
    to: Annotated[str, typer.Option(metavar="URL", help="Where to: a URL or a path; perhaps the same tier.")],
    topic: Topics = None,
    namespace: Namespaces = None,
    ledger: Annotated[
        list[int] | None,
        typer.Option(help="Only this ledger, and segments with it; may be given again; needs --topic."),
    ] = None,
    to_format: Annotated[
        CopyFormat | None,
        typer.Option("--format", help="The format of the new copies; without it they keep theirs."),
    ] = None,
    to_filter: Annotated[
        CopyFilterName | None,
        typer.Option("--filter", help="Leave out what no consumer sees: messages of aborted transactions."),
    ] = None,
    filter_mode: Annotated[
        FilterMode | None,
        typer.Option(
            help="What takes an entry's place: tombstone (Pulsar reads the objects; default) or gap (only readers of "
            "ours do)."
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Ledgers that follow each other become segments, some in each.")
    ] = False,
    segment_size: Annotated[
        str,
        typer.Option(metavar="SIZE", help="With --merge: a segment ends with the ledger that reaches it."),
    ] = "1GiB",
    mapping: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For records that only others write, as a live Pulsar's: moves are written here instead, and the "
            "changes that its records need are shown.",
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Topics of the running cluster in the settings: its records name the new copies, once they are "
            "verified, and its brokers are seen to read them.",
        ),
    ] = False,
    config: ConfigFile = None,
    delete_source: Annotated[
        bool, typer.Option("--delete-source", help="Delete old copies that were replaced for the --grace.")
    ] = False,
    grace: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long readers that have an old copy open may go on: 1h, 2d, 0."
        ),
    ] = "1d",
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="At most so many bytes a second from or to each of the two tiers: 50MB; processes have a share each.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Without --records: pass over what was verified the last time."),
    ] = None,
    prefix: Prefix = "",
    to_driver: Annotated[str | None, typer.Option(help="As --driver, of --to.")] = None,
    to_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="As --option, of --to; may be given again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move cold copies to another tier or format: copy and verify them, then change the records.

    Without --yes the command shows what it would move. It can be broken off at any time, and goes on when it is called
    again. Without --records all objects are copied as they are, under the same keys. The exit code is 1 if something
    is left, or in a dry run would be done.

    Examples:
        offload relocate s3://old --to s3://new --records sqlite:records.db
        offload relocate s3://old --to s3://copy --yes --audit-log audit.jsonl --state copied.db
    """
    with ExitStack() as held:
        log = changes.open_log()
        topics = topic or ()
        asked = topic_filter(topic, namespace)
        wants = asked or (lambda _: True)
        bytes_per_s = None if rate is None else parse_size(rate)
        source = held.enter_context(where.open())
        there = TierOptions(url=to, driver=to_driver, option=to_option, layer=where.layer)
        target = held.enter_context(there.open())
        is_here = executors.master is None and not executors.processes
        if is_here:
            executors = replace(executors, workers=executors.workers or DEFAULT_PARALLEL)
        if not changes.yes:
            executors = replace(executors, master=None)
        executor = held.enter_context(executors.open())
        share = max(1, bytes_per_s // executor.processes) if bytes_per_s else bytes_per_s
        tiers = [held.enter_context(throttled(each.store, share)) for each in (source, target)]
        if live:
            if records.records or mapping or merge or delete_source:
                raise OptionError(
                    "a running cluster's records are in the settings; brokers read no merged ledgers, and "
                    "`offload gc` deletes old copies once the records name the new ones",
                    expected="--live without --records, --mapping, --merge, --delete-source",
                )
        elif config is not None:
            raise OptionError("the settings are those of a running cluster", expected="--config with --live")
        elif records.records is None:
            if to_format or ledger or mapping or merge or delete_source or to_filter:
                raise OptionError(
                    "without records objects are copied as they are, and none is deleted",
                    expected="--records with --format, --filter, --ledger, --merge, --mapping, --delete-source",
                )
            kept = None if state is None or not changes.yes else _state(state, target.store)
            known = None if kept is None else held.enter_context(kept)
            copies = PlainCopy(
                tiers[0], tiers[1], prefix=prefix, wants=wants, audit=log, state=known, executor=executor
            )
            _copy(copies, topics, changes, as_json=as_json)
            return
        if state is not None or prefix:
            raise OptionError(
                "records say what there is", expected="neither --state nor --prefix with --records"
            )
        if ledger and not topic:
            raise OptionError("ledgers need a topic", expected="--topic with --ledger")
        if mapping is not None and delete_source:
            raise OptionError(
                "old copies are needed until a live Pulsar's records name the new ones",
                expected="--delete-source without --mapping",
            )
        if filter_mode is not None and to_filter is None:
            raise OptionError("no copy is filtered", expected="--filter with --filter-mode")
        wanted = Wanted(
            source=tier_record(source.store),
            target=tier_record(target.store),
            format=None if to_format is None else ObjectFormat(to_format.value),
            merge_bytes=parse_size(segment_size) if merge else None,
            ledger_ids=frozenset(ledger) if ledger else None,
            filter=None if to_filter is None else filter_mode or FilterMode.TOMBSTONE,
        )
        if live and wanted.filter is not None:
            check_readable(wanted.filter)
        grace_ms = 1000 * parse_seconds(grace)
        if live:
            moved = held.enter_context(open_live(config, tiers, log))
            registry = RecordRegistry(moved.mirror.records, system_now_ms)
            recorded = _MovedRecords(registry=registry, topics=moved.topics(), live=moved)
        else:
            recorded = held.enter_context(
                _opened(
                    source,
                    records.require("where are the records?"),
                    records.given(),
                    mapping,
                    is_dry=log is None,
                )
            )
        _check_known(topics, recorded.topics)
        infos = recorded.infos(filter(wants, sorted(recorded.topics)))
        for ledger_id in ledger or ():
            if all(info.ledger(ledger_id) is None for info in infos.values()):
                raise OptionError("the topic has no such ledger", ledger_id=ledger_id)
        done = Relocated(is_dry=log is None)
        for each, info in infos.items():
            _plan(recorded, each, info, wanted, tiers[1], done)
        work = held.enter_context(long_work("moving", go_on=_GO_ON, within_s=_ENDS_WITHIN_S, logs=True))
        work.update(whole_bytes=done.planned_bytes)
        mover = Mover(
            recorded.registry,
            tiers[0],
            tiers[1],
            log or _DryRun(),
            now_ms=system_now_ms,
            listener=work.advance,
        )
        try:
            if log is not None:
                elsewhere = None if is_here else executor
                threads = executors.workers or DEFAULT_PARALLEL
                made = make_moves(mover, done.plans, parallel=threads, executor=elsewhere)
                _make(made, done, recorded.live, work)
            for each in infos if delete_source else ():
                if log is None:
                    found = OldCopies(topic=each, deleted=tuple(mover.replaced(each, grace_ms)))
                else:
                    found = mover.delete_replaced(each, grace_ms)
                done.old.append(found)
        finally:
            mapped = () if mapping is None or not mapping.exists() else read_mapping(mapping).done
            show_relocated(done, mapped, as_json=as_json)
        if not as_json:
            changes.show_next_step(done.deleted or any(plan.moves for plan in done.plans))
        if done.is_left:
            raise typer.Exit(1)


_GO_ON = "What was moved stays; the next call goes on with the rest."
_ENDS_WITHIN_S = 10.0
"""Moves under way end at their next part, and delete what they wrote."""


def _plan(
    recorded: _MovedRecords,
    topic: TopicName,
    info: ManagedLedgerInfo,
    wanted: Wanted,
    target: Tier,
    done: Relocated,
) -> None:
    """Plan the moves of a topic; one of a running cluster that fails does not end the others."""
    if recorded.live is None:
        done.plans.append(plan_topic(topic, info, wanted))
        return
    try:
        done.plans.append(plan_live_topic(recorded.live, topic, wanted, target, is_dry=done.is_dry))
    except OffloadError as error:
        done.given.append(TopicCopies(topic=topic, error=error))


def _make(
    outcomes: Iterator[Outcome], done: Relocated, live: LiveReplacements | None, work: LongWork
) -> None:
    """Make all moves; those of a topic of a running cluster are given to its record when the last one has ended."""
    under_way = Counter(move.topic for plan in done.plans for move in plan.moves)
    whole = under_way.total()
    if live is not None:  # an earlier call may have been broken off before that
        done.given.extend(give_copies(live, plan.topic) for plan in done.plans if not plan.moves)
    for outcome in outcomes:
        done.outcomes.append(outcome)
        work.update(f"{len(done.outcomes)} of {whole} copies")
        topic = outcome.move.topic
        under_way[topic] -= 1
        if live is not None and not under_way[topic]:
            done.given.append(give_copies(live, topic))


def _check_known(topics: Sequence[str], known: Collection[TopicName]) -> None:
    """Refuse topics without objects."""
    for topic in topics:
        if not any(map(TopicPatterns((topic,)), known)):
            some = [str(each) for each in sorted(known)[:_SHOWN_TOPICS]]
            more = f" and {len(known) - len(some):,} others" if len(known) > len(some) else ""
            raise OptionError(
                "nothing is known of this topic", expected=f"{', '.join(some) or 'none'}{more}", found=topic
            )


def _copy(copies: PlainCopy, topics: Sequence[str], changes: ChangeOptions, *, as_json: bool) -> None:
    """Copy objects as they are, and print the result of each pair."""
    counts: Counter[PlainStatus] = Counter()
    sizes: Counter[PlainStatus] = Counter()
    began = monotonic()
    seen: set[TopicName] = set()
    with long_work("copying", go_on=_GO_ON, logs=True) as work:
        for result in copies:
            if topics and result.topic is not None:
                seen.add(result.topic)
            counts[result.status] += 1
            sizes[result.status] += result.size_bytes
            work.update(count_text(counts.total(), "pair"))
            show_copied(result, as_json=as_json)
    if not as_json:
        counted = "; ".join(
            f"{count:,} {status.value}, {size(sizes[status])}" for status, count in counts.items()
        )
        took = f", in {duration(monotonic() - began)}" if counts[PlainStatus.COPIED] else ""
        pairs = count_text(counts.total(), "pair")
        print_line(f"{pairs} of objects{f': {counted}' if counted else ''}{took}")
        if counts[PlainStatus.MISSING]:
            print_line(f"{size(sizes[PlainStatus.MISSING])} would be copied; nothing was")
        changes.show_next_step(counts[PlainStatus.MISSING])
    _check_known(topics, seen)
    if counts.keys() - {PlainStatus.COPIED, PlainStatus.THERE}:
        raise typer.Exit(1)


def _state(path: Path, target: Tier) -> VerifiedObjects:
    return VerifiedObjects(path, target.describe().location)


class _DryRun:
    """The audit log of a dry run, which changes nothing."""

    def record(self, change: object) -> None:
        raise AssertionError(f"a dry run was about to change something: {change}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _MovedRecords:
    """Where moves are written down, and the topics.

    Attributes:
        live: of a running cluster, what its records are changed by.
    """

    registry: CopyRegistry
    topics: Sequence[TopicName]
    live: LiveReplacements | None = None

    def infos(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """The records of topics; a running cluster may have deleted one meanwhile."""
        if self.live is None:
            return {each: self.registry.info(managed_ledger_of_topic(each)) for each in topics}
        infos = {}
        for each in topics:
            with suppress(UnknownTopicError):
                infos[each] = self.live.copies(each).read_info()
        return infos


@contextmanager
def _opened(
    source: TierReader, records: str, options: dict[str, Any], mapping: Path | None, *, is_dry: bool
) -> Iterator[_MovedRecords]:
    """Records that are ours, or a mapping beside others."""
    if mapping is None:
        try:
            opened_store = open_metadata_store(records, options)
        except (OptionError, UnknownPluginError) as error:
            theirs = (
                "Records that are not ours to write, as files or a live Pulsar's, go with --mapping FILE; those of a "
                "running cluster with --live."
            )
            raise OptionError(error.what, expected=error.expected, found=error.found, hint=theirs) from error
        with closing(opened_store) as store:
            ours = ManagedLedgerRecords(store)
            topics = [topic_of_managed_ledger(each) for each in ours.names()]
            yield _MovedRecords(registry=RecordRegistry(ours, system_now_ms), topics=topics)
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
        yield _MovedRecords(registry=MappingRegistry(file, read, system_now_ms), topics=topics)
