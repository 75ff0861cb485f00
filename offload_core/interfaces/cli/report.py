"""`offload report`: one page about a tier that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offload_core.interfaces.cli.command_options import Prefix, RecordOptions, TierOptions, command
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import nothing_at
from offload_core.interfaces.cli.terminal import err, output_file, print_line, size, warn
from offload_core.maintenance.inventory.report_contents import TOP_TOPICS, gather
from offload_core.maintenance.inventory.report_page import report_page
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue.summaries import count_text
from offload_hooks.errors import StoreError


@command()
def report(
    where: TierOptions,
    records: RecordOptions,
    output: Annotated[Path, typer.Option(help="The page's file, which is replaced.", show_default=False)],
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify objects, indexes and records for it.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, max=200, help="Show so many topics one by one.")] = TOP_TOPICS,
    prefix: Prefix = "",
) -> None:
    """Write one self-contained page about a tier: topics, ledgers, growth, sizes, ages, problems.

    The exit code is 0 if the page is written, whatever it shows.

    Examples:
        offload report s3://bucket/prefix --output report.html
    """
    with where.open() as tier, long_work("reading objects") as work:
        verification = None
        if verify:
            verification = Verification(
                tier.store,
                prefix=prefix,
                records=records.opener(tier),
                listener=lambda now: work.update(f"{now.objects:,} verified"),
            )
        catalogue = tier.catalogue(prefix=prefix, records=records.records, records_options=records.given())
        if not (catalogue.topics or catalogue.strays):
            warn(nothing_at(tier.store, prefix))
        location = tier.store.describe().location
        page = report_page(gather(catalogue, location, findings=verification, top=top))
    data = page.html.encode()
    try:
        with output_file(output) as file:
            file.write(data)
    except OSError as error:
        raise StoreError("the page cannot be written", key=str(output), found=error.strerror) from error
    if verification is not None and verification.summary.failed:
        failed = count_text(verification.summary.failed, "object")
        err.print(f"{failed} could not be verified", style="red", highlight=False)
    print_line(f"{output}: {size(len(data))}")
