"""`offload report`: one page about a tier that needs no network."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from offload_core.interfaces.cli.executors import Lookers, Master, Processes, looking
from offload_core.interfaces.cli.nothing_found import nothing_at, warn
from offload_core.interfaces.cli.shared import (
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    Url,
    err,
    named,
    opened,
    out,
    output_file,
    printable,
    reported,
    size,
)
from offload_core.maintenance.inventory.gathering import TOP_TOPICS, gather
from offload_core.maintenance.inventory.page import report_page
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue import open_records
from offload_hooks.errors import StoreError


def report(
    url: Url,
    output: Annotated[Path, typer.Option(help="The page's file, which is replaced.", show_default=False)],
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify objects, indexes and records for it.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, max=200, help="Tell so many topics one by one.")] = TOP_TOPICS,
    master: Master = None,
    workers: Lookers = None,
    processes: Processes = False,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    debug: Debug = False,
) -> None:
    """Make one self-contained page about a tier: topics, ledgers, growth, sizes, ages, problems.

    The exit code is 0 if the page is written, whatever it shows.
    """
    with reported(debug):
        own = named(records_option, "the records")
        with (
            opened(url, driver, option, layer) as tier,
            looking(master, workers, processes) as executor,
            err.status("looking at objects") as status,
        ):
            verification = None
            if verify:
                given = (
                    None if records is None else partial(open_records, records, tier.store, tier.options, own)
                )
                verification = Verification(
                    tier.store,
                    prefix=prefix,
                    records=given,
                    executor=executor,
                    listener=lambda now: status.update(f"verifying: {now.objects:,} objects"),
                )
            catalogue = tier.catalogue(prefix=prefix, records=records, records_options=own, executor=executor)
            if not (catalogue.topics or catalogue.strays):
                warn(nothing_at(tier.store, prefix))
            location = tier.store.describe().location
            page = report_page(gather(catalogue, location, findings=verification, top=top))
        written = _replace(output, page.html)
    if verification is not None and verification.summary.failed:
        err.print(
            f"{verification.summary.failed} objects could not be verified", style="red", highlight=False
        )
    out.print(printable(f"{output}: {size(written)}"), markup=False, highlight=False, soft_wrap=True)


def _replace(path: Path, text: str) -> int:
    """Write a file whole, in the place of one that may be there, or into a pipe or device; the bytes written."""
    data = text.encode()
    try:
        with output_file(path) as file:
            file.write(data)
    except OSError as error:
        raise StoreError("the page cannot be written", key=str(path), found=error.strerror) from error
    return len(data)
