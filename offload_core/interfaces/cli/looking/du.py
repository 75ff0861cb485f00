"""`offload du`: how many bytes lie in a tier, and whose, or of what format, age or storage class."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from offload_core.interfaces.cli.executors import Lookers, Master, Processes, looking
from offload_core.interfaces.cli.json_document import print_streamed
from offload_core.interfaces.cli.nothing_found import Seen, missing_warned_of
from offload_core.interfaces.cli.progress import count_bar
from offload_core.interfaces.cli.shared import (
    AsJson,
    Debug,
    Driver,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    StorageOptions,
    TopicGlobs,
    Url,
    named,
    opened,
    out,
    printable,
    reported,
    size,
)
from offload_core.maintenance.inventory import By, TopicPatterns, measure
from offload_core.maintenance.inventory.usage import OTHER
from offload_core.metadata.catalogue import TopicName, open_records

_TOTAL = "total"


def du(
    url: Url,
    by: Annotated[By, typer.Option(help="What bytes are counted by.")] = By.PLACE,
    depth: Annotated[
        int, typer.Option("--depth", "-d", min=0, help="1: tenants, 2: namespaces too, 3: topics too.")
    ] = 3,
    topic: TopicGlobs = None,
    exact: Annotated[
        bool, typer.Option("--bytes", "-b", help="Bytes as they are, for other programs.")
    ] = False,
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
    """Count the bytes of a tier: data and index objects of all attempts, whether they are read or not.

    Whose an object is says its user metadata, by a request for each pair; with records no such request is made.
    """
    with (
        reported(debug),
        opened(url, driver, option, layer) as tier,
        looking(master, workers, processes) as executor,
    ):
        given = named(records_option, "the records")
        source = nullcontext() if records is None else open_records(records, tier.store, tier.options, given)
        with (
            source as known,
            count_bar("objects") as listener,
            missing_warned_of(
                Seen.of_patterns(topic if by is By.PLACE else None), tier.store, prefix
            ) as seen,
        ):
            usage = measure(
                tier.store,
                by=by,
                prefix=prefix,
                records=known,
                wanted=TopicPatterns(topic) if topic else None,
                now=datetime.now(UTC),
                executor=executor,
                listener=listener,
            )
            for path in usage.objects:
                if path not in ((), (OTHER,)):
                    seen.note(TopicName("persistent://" + "/".join(path)))
    lines = usage.lines(depth)
    if as_json:
        fields = ({"path": list(path), "bytes": used, "objects": count} for path, used, count in lines)
        print_streamed({"by": by.value, "usage": fields})
        return
    for path, used, count in lines:
        shown = str(used) if exact else size(used)
        out.print(
            f"{shown:>10}  {count:>9,}  {printable(_name(path))}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _name(path: Sequence[str]) -> str:
    return "/".join(path) or _TOTAL
