"""`offload cost`: requests, bytes and money: of what is stored, of a scan before it runs, of a move."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated

import typer

from offload_core.interfaces.cli.amounts import parse_size
from offload_core.interfaces.cli.executors import Lookers, Master, Processes, looking
from offload_core.interfaces.cli.looking.cost_views import Costs, costs_to_json, largest_class, print_costs
from offload_core.interfaces.cli.nothing_found import Seen, nothing_at, warn
from offload_core.interfaces.cli.shared import (
    AsJson,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    TopicNames,
    Url,
    err,
    named,
    opened,
    reported,
)
from offload_core.maintenance.inventory.charges import Saving, weigh_classes
from offload_core.maintenance.inventory.prices import Rates, Tariff, load_prices
from offload_core.maintenance.inventory.stored import by_class, survey_stored
from offload_core.metadata.catalogue import TopicName, open_records, parse_topic
from offload_core.reading.scan import ScanOptions, explain_scan
from offload_core.reading.scan.tasks import Isolation
from offload_hooks.errors import OptionError


def cost(
    url: Url,
    prices: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|example:NAME",
            help="What the store charges, TOML or JSON. Without it requests and bytes are told, and no money.",
        ),
    ] = None,
    storage_class: Annotated[
        str | None, typer.Option("--class", help="The storage class of all; without it what the store says.")
    ] = None,
    topic: TopicNames = None,
    cluster: Annotated[str | None, typer.Option(help="Scan what this Pulsar cluster offloaded.")] = None,
    scan: Annotated[
        bool, typer.Option(help="Tell what one full scan takes; it is planned, not read.")
    ] = True,
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
            metavar="SIZE", help="What it would save to merge ledgers into segments of this size: 1G."
        ),
    ] = None,
    master: Master = None,
    workers: Lookers = None,
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
    """Tell what is stored, what writing it took, what one full scan takes before it runs, and what a move would save.

    Nothing is written, and of what is stored only indexes are read.
    """
    with reported(debug):
        rates = _rates(prices, storage_class)
        other = _compared(prices, compare, compare_class, merge)
        merge_bytes = None if merge is None else parse_size(merge)
        own = named(records_option, "the records")
        with (
            opened(url, driver, option, layer) as tier,
            looking(master, workers, processes) as executor,
            err.status("looking at objects") as status,
        ):
            stored = survey_stored(
                tier.store,
                classes=[
                    each for one in (rates, other) if one is not None for each in one.prices.classes.values()
                ],
                prefix=prefix,
                records=None
                if records is None
                else partial(open_records, records, tier.store, tier.options, own),
                topics=[parse_topic(each).full for each in topic or ()],
                executor=executor,
                listener=lambda count: status.update(f"looking at objects: {count:,}"),
            )
            seen = Seen.of_names(topic)
            for name, _, _ in stored:
                seen.note(TopicName(name))
            seen.require_all(tier.store)
            estimate = None
            if scan and stored:
                status.update("planning a scan")
                isolation: Isolation = "uncommitted" if uncommitted else "committed"
                asked = ScanOptions(
                    cluster=cluster,
                    isolation=isolation,
                    fail_on_data_loss=False,
                    prefix=prefix,
                    records=records,
                    records_options=own or None,
                )
                estimate = explain_scan(tier, topic or (), asked)
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
        else:
            print_costs(costs)
        if not seen.anything:
            warn(nothing_at(tier.store, prefix))


def _rates(prices: str | None, class_name: str | None) -> Rates | None:
    if prices is None:
        if class_name is not None:
            raise OptionError("a storage class costs what prices say", expected="--prices with --class")
        return None
    return Rates(prices=load_prices(prices), given=class_name)


def _compared(
    prices: str | None, compare: str | None, compare_class: str | None, merge: str | None
) -> Rates | None:
    """What a move is compared with; None for no comparison."""
    if compare is None and compare_class is None and merge is None:
        return None
    if prices is None:
        raise OptionError(
            "what is saved is told by prices", expected="--prices with --compare, --compare-class or --merge"
        )
    return Rates(prices=load_prices(prices if compare is None else compare), given=compare_class)
