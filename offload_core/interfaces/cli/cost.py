"""`offload cost`: requests, bytes and money: of what is stored, of a scan before it runs, of a move."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_options import (
    AsJson,
    Hot,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
    parse_size,
)
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import FoundTopics, chosen_topics, nothing_at
from offload_core.interfaces.cli.terminal import (
    cell,
    err,
    out,
    print_line,
    print_table,
    printable,
    size,
    warn,
)
from offload_core.maintenance.inventory.charges import (
    Money,
    Saving,
    money_of,
    month_of_storage,
    offload_requests,
    weigh_classes,
)
from offload_core.maintenance.inventory.prices import Prices, Rates, Tariff, load_prices
from offload_core.maintenance.inventory.stored_amounts import StoredAmount, StoredBy, by_class, survey_stored
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.reading.scan import ScanEstimate, ScanOptions, explain_scan
from offload_core.reading.scan.tasks import Isolation
from offload_core.storage.tier import Requests
from offload_hooks.errors import OptionError


@command()
def cost(
    where: TierOptions,
    records: RecordOptions,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|example:NAME",
            help="What the store charges, TOML or JSON. Without it there are requests and bytes, and no money.",
        ),
    ] = None,
    storage_class: Annotated[
        str | None,
        typer.Option("--class", help="The storage class of all objects; without it the store's own."),
    ] = None,
    topic: Topics = None,
    cluster: Annotated[str | None, typer.Option(help="Scan what this Pulsar cluster offloaded.")] = None,
    scan: Annotated[bool, typer.Option(help="Estimate one full scan; it is planned, not read.")] = True,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="The scan reads all messages, so that nothing is looked up.")
    ] = False,
    leaves: Annotated[
        bool,
        typer.Option(
            "--egress",
            help="What a scan or a move reads leaves the provider's network or region: it is paid.",
        ),
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option(metavar="FILE|example:NAME", help="What it would save to keep it at these prices."),
    ] = None,
    compare_class: Annotated[
        str | None,
        typer.Option(help="What it would save to keep it in this class, of --compare or --prices."),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="What it would save to merge ledgers into segments of this size: 1GB."
        ),
    ] = None,
    prefix: Prefix = "",
    hot: Hot = None,
    as_json: AsJson = False,
) -> None:
    """Show requests, bytes and money: of what is stored, of a full scan before it runs, of a move.

    Nothing is written, and of what is stored only indexes are read. With --hot the scan is one of both tiers.

    Examples:
        offload cost s3://bucket/prefix
        offload cost s3://bucket/prefix --prices example:aws-s3
    """
    records.require_for(hot)
    if hot is not None and not scan:
        raise OptionError("a hot tier is read by a scan only", expected="--hot without --no-scan")
    rates = _rates(prices, storage_class)
    other = _compared(prices, compare, compare_class, merge)
    merge_bytes = None if merge is None else parse_size(merge)
    with where.open(hot) as tier, long_work("reading objects") as work:
        chosen = [each.full for each in chosen_topics(tier, topic, records.opener(tier))]
        stored = survey_stored(
            tier.store,
            classes=[
                each for one in (rates, other) if one is not None for each in one.prices.classes.values()
            ],
            prefix=prefix,
            records=records.opener(tier),
            topics=chosen,
            listener=lambda count: work.update(f"{count:,}"),
        )
        seen = FoundTopics.of(topic)
        for name, _, _ in stored:
            seen.note(TopicName(name))
        if hot is None:
            seen.require_all(tier.store)
        estimate = None
        if scan and (stored or hot is not None):
            work.begin("planning a scan")
            isolation: Isolation = "uncommitted" if uncommitted else "committed"
            asked = ScanOptions(
                cluster=cluster,
                isolation=isolation,
                fail_on_data_loss=False,
                prefix=prefix,
                records=records.records,
                records_options=records.given() or None,
            )
            estimate = explain_scan(tier, chosen, asked)
            for name in estimate.hot_bytes_by_topic:
                seen.note(TopicName(name))
            seen.require_all(tier.store)
        here = None if rates is None else rates.of(largest_class(stored))
        there: Tariff | None = None
        saving: Saving | None = None
        if rates is not None and here is not None and other is not None:
            # what is only merged stays in its class
            there = here if compare is None and compare_class is None else other.of("")
            saving = weigh_classes(
                by_class(stored),
                rates.of,
                there,
                scan_at=here,
                leaves=leaves,
                merge_bytes=merge_bytes,
                scan=None if estimate is None else estimate.total,
            )
        costs = Costs(
            tier=tier.store.describe().location,
            stored=stored,
            rates=rates,
            tariff=here,
            scan=estimate,
            leaves=leaves,
            there=there,
            merge_bytes=merge_bytes,
            saving=saving,
        )
    if as_json:
        typer.echo(json.dumps(costs_to_json(costs), indent=2))
    elif seen.anything:
        print_costs(costs)
    if not seen.anything:
        warn(nothing_at(tier.store, prefix))


def _rates(prices: str | None, class_name: str | None) -> Rates | None:
    if prices is None:
        if class_name is not None:
            raise OptionError("a storage class has a cost by prices only", expected="--prices with --class")
        return None
    return Rates(prices=load_prices(prices), given=class_name)


def _compared(
    prices: str | None, compare: str | None, compare_class: str | None, merge: str | None
) -> Rates | None:
    """Return the rates after a move; None for no comparison."""
    if compare is None and compare_class is None and merge is None:
        return None
    if prices is None:
        raise OptionError(
            "savings are computed from prices", expected="--prices with --compare, --compare-class or --merge"
        )
    return Rates(prices=load_prices(prices if compare is None else compare), given=compare_class)


REPORT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """All that was found out; `rates` and `tariff`, those of most bytes and of scans, are None without prices, the rest
    where it was not asked for."""

    tier: str
    stored: StoredBy
    rates: Rates | None
    tariff: Tariff | None
    scan: ScanEstimate | None
    leaves: bool
    there: Tariff | None
    merge_bytes: int | None
    saving: Saving | None

    @property
    def total(self) -> StoredAmount:
        """All that is stored."""
        total = StoredAmount()
        for each in self.stored.values():
            total.add(each)
        return total

    @property
    def has_classes(self) -> bool:
        """True if the store names the storage class of any object."""
        return any(name for _, _, name in self.stored)

    @property
    def classes_without_price(self) -> list[str]:
        """Storage classes that the prices do not have, so that those of the default one are taken."""
        names = {name for _, _, name in self.stored}
        return [] if self.rates is None else sorted(name for name in names if not self.rates.knows(name))

    def money(self) -> tuple[float, float]:
        """Return the cost of writing all, and of a month of it."""
        amounts = [self.money_of(key) for key in self.stored]
        return sum(each[0] for each in amounts), sum(each[1] for each in amounts)

    def money_of(self, key: tuple[str, str, str]) -> tuple[float, float]:
        """The same, for a row."""
        if self.rates is None:
            return 0.0, 0.0
        stored, tariff = self.stored[key], self.rates.of(key[2])
        return money_of(offload_requests(stored), tariff).total, month_of_storage(stored, tariff)


def largest_class(found: StoredBy) -> str:
    """The storage class that most bytes are in."""
    sizes = {
        name: sum(each.total_bytes for each in topics.values()) for name, topics in by_class(found).items()
    }
    return max(sizes, key=lambda name: (sizes[name], name), default="")


def costs_to_json(costs: Costs) -> dict[str, Any]:
    """The costs as JSON, by the names of docs/cost.md."""
    return {
        "version": REPORT_VERSION,
        "tier": costs.tier,
        "prices": None if costs.tariff is None else _prices_to_json(costs.tariff),
        "stored": [
            {
                "topic": key[0],
                "month": key[1] or None,
                "storage_class": key[2] or None,
                **_stored_to_json(stored, None if costs.rates is None else costs.money_of(key)),
            }
            for key, stored in costs.stored.items()
        ],
        "total": _stored_to_json(costs.total, None if costs.rates is None else costs.money()),
        "classes_without_price": costs.classes_without_price,
        "scan": None if costs.scan is None else _scan_to_json(costs.scan, costs.tariff, costs.leaves),
        "saving": None if costs.saving is None else _saving_to_json(costs, costs.saving),
    }


def print_costs(costs: Costs) -> None:
    """Print the costs as tables."""
    tariff = costs.tariff
    if tariff is None:
        err.print(
            "without --prices there is no money in this: --prices example:aws-s3 has some", highlight=False
        )
    else:
        prices = tariff.prices
        title = f"{prices.name}, as of {prices.as_of}, class {tariff.class_name}, in {prices.currency}"
        out.print(cell(title), soft_wrap=True)
        if any(each.prices.is_example for each in (tariff, costs.there) if each is not None):
            err.print("these prices are an example: check them before you decide anything", style="yellow")
    for name in costs.classes_without_price:
        taken = "the prices of the default class are taken"
        err.print(printable(f"no prices for the storage class {name}: {taken}"), style="yellow", markup=False)
    out.print("Stored, by topic and month", style="bold", soft_wrap=True)
    print_table(_stored_table(costs), drop=("parts", "objects", "copies", "requests to write", "month"))
    if costs.scan is not None:
        title = f"One full scan of it, in {count_text(costs.scan.partitions, 'partition')}"
        out.print(f"\n{title}", style="bold", highlight=False, soft_wrap=True)
        print_table(_scan_table(costs.scan, tariff, costs.leaves), drop=("lookups", "listings"))
        if costs.scan.ends_early:
            err.print("the scan may end before all of this is asked for", highlight=False)
    if costs.saving is not None:
        _print_saving(costs, costs.saving)


def _stored_table(costs: Costs) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("topic", "month", *(["class"] if costs.has_classes else [])):
        table.add_column(name)
    for name in ("copies", "objects", "size", "parts", "requests to write"):
        table.add_column(name, justify="right")
    if costs.rates is not None:
        for name in ("writing", "a month"):
            table.add_column(_in_currency(name, costs.rates.prices), justify="right")
    rows = [
        (key[0], key[1] or "–", key[2] or "–", each, costs.money_of(key))
        for key, each in costs.stored.items()
    ]
    for topic, month, storage_class, stored, amounts in [*rows, ("all", "", "", costs.total, costs.money())]:
        writing = offload_requests(stored)
        money = [] if costs.rates is None else [amount(each) for each in amounts]
        table.add_row(
            cell(topic.removeprefix("persistent://")),
            month,
            *([cell(storage_class)] if costs.has_classes else []),
            f"{stored.copies:,}",
            f"{stored.objects:,}",
            size(stored.total_bytes),
            f"{stored.parts:,}",
            f"{writing.puts:,}",
            *money,
        )
    return table


def _scan_table(scan: ScanEstimate, tariff: Tariff | None, leaves: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("step")
    money_names = [] if tariff is None else [_in_currency("cost", tariff.prices)]
    for name in ("listings", "lookups", "reads", "bytes", *money_names):
        table.add_column(name, justify="right")
    for step, requests in (
        ("planning", scan.planning),
        ("reading", scan.reading),
        ("transactions, in Spark", scan.transactions),
        ("all", scan.total),
    ):
        money = [] if tariff is None else [amount(money_of(requests, tariff, leaves=leaves).total)]
        table.add_row(
            step,
            f"{requests.lists:,}",
            f"{requests.heads:,}",
            f"{requests.gets:,}",
            size(requests.read_bytes),
            *money,
        )
    for topic, hot_bytes in sorted(scan.hot_bytes_by_topic.items()):
        name = topic.removeprefix("persistent://")
        table.add_row(cell(f"in the hot tier, {name}"), "", "", "", size(hot_bytes))
    return table


def _print_saving(costs: Costs, saving: Saving) -> None:
    assert costs.there is not None
    prices = costs.there.prices
    out.print()
    out.print(cell(_move(costs)), style="bold", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("", "now", "then"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("objects", f"{saving.objects:,}", f"{saving.objects_then:,}")
    table.add_row(_in_currency("a month", prices), amount(saving.month), amount(saving.month_then))
    if saving.scan is not None and saving.scan_then is not None:
        table.add_row("requests of a scan", f"{saving.scan.total:,}", f"{saving.scan_then.total:,}")
        table.add_row(_in_currency("a scan", prices), amount(saving.scan_cost), amount(saving.scan_cost_then))
    print_table(table)
    parts = {
        "reading": saving.reading,
        "egress": saving.egress,
        "writing": saving.writing,
        "early": saving.early,
    }
    named = ", ".join(f"{name} {amount(value)}" for name, value in parts.items() if value)
    once = f"moving costs {amount(saving.once)} {prices.currency} once{f' ({named})' if named else ''}"
    if saving.months_to_pay is None:
        print_line(f"{once}; storage costs no less then")
    else:
        saved = f"{amount(saving.saved_a_month)} {prices.currency}"
        print_line(f"{once}, and saves {saved} a month: paid after {saving.months_to_pay:.1f} months")


def _move(costs: Costs) -> str:
    assert costs.there is not None
    merged = (
        "" if costs.merge_bytes is None else f", ledgers merged into segments of {size(costs.merge_bytes)}"
    )
    return f"Moved to {costs.there.prices.name}, class {costs.there.class_name}{merged}"


def amount(money: float) -> str:
    """Money as text, without its currency."""
    if 0 < money < _LEAST_SHOWN:
        return f"< {_LEAST_SHOWN:.6f}"
    return f"{money:,.2f}" if money >= 1 or not money else f"{money:.6f}"


_LEAST_SHOWN = 1e-6


def _in_currency(name: str, prices: Prices) -> str:
    """Return the name of an amount with its currency."""
    return printable(f"{name}, {prices.currency}")


def _prices_to_json(tariff: Tariff) -> dict[str, Any]:
    prices = tariff.prices
    return {
        "name": prices.name,
        "as_of": prices.as_of,
        "is_example": prices.is_example,
        "currency": prices.currency,
        "class": tariff.class_name,
    }


def _stored_to_json(stored: StoredAmount, money: tuple[float, float] | None) -> dict[str, Any]:
    writing = offload_requests(stored)
    fields: dict[str, Any] = {
        "copies": stored.copies,
        "objects": stored.objects,
        "data_bytes": stored.data_bytes,
        "other_bytes": stored.other_bytes,
        "parts": stored.parts,
        "requests_to_write": writing.puts,
    }
    if money is not None:
        fields["cost_of_writing"], fields["cost_a_month"] = money
    return fields


def _scan_to_json(scan: ScanEstimate, tariff: Tariff | None, leaves: bool) -> dict[str, Any]:
    def fields_of(requests: Requests) -> dict[str, Any]:
        shown: dict[str, Any] = asdict(requests)
        del shown["puts"]
        return shown | ({} if tariff is None else {"cost": _money(money_of(requests, tariff, leaves=leaves))})

    return {
        "partitions": scan.partitions,
        "ends_early": scan.ends_early,
        "planning": fields_of(scan.planning),
        "reading": fields_of(scan.reading),
        "transactions": fields_of(scan.transactions),
        "total": fields_of(scan.total),
        "by_topic": {topic: fields_of(requests) for topic, requests in scan.by_topic.items()},
        "hot_bytes_by_topic": dict(scan.hot_bytes_by_topic),
    }


def _money(money: Money) -> dict[str, float]:
    return {**asdict(money), "total": money.total}


def _saving_to_json(costs: Costs, saving: Saving) -> dict[str, Any]:
    assert costs.there is not None
    return {
        "prices": _prices_to_json(costs.there),
        "merge_bytes": costs.merge_bytes,
        **{name: value for name, value in asdict(saving).items() if not name.startswith("scan")},
        "scan_requests": None if saving.scan is None else saving.scan.total,
        "scan_requests_then": None if saving.scan_then is None else saving.scan_then.total,
        "scan_cost": saving.scan_cost,
        "scan_cost_then": saving.scan_cost_then,
        "once": saving.once,
        "saved_a_month": saving.saved_a_month,
        "months_to_pay": saving.months_to_pay,
    }
