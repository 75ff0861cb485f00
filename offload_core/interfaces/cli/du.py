"""`offload du`: count a tier's bytes by topic, format, age or storage class."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from typing import Annotated

import typer

from offload_core.interfaces.cli.command_options import (
    AsJson,
    Prefix,
    RecordOptions,
    TierOptions,
    Topics,
    command,
)
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.nothing_found import FoundTopics, missing_warned_of
from offload_core.interfaces.cli.terminal import print_line, print_streamed, size
from offload_core.maintenance.inventory import By, TopicPatterns, measure
from offload_core.maintenance.inventory.tier_usage import OTHER
from offload_core.metadata.catalogue import TopicName


@command()
def du(
    where: TierOptions,
    records: RecordOptions,
    by: Annotated[By, typer.Option(help="What bytes are counted by.")] = By.PLACE,
    depth: Annotated[
        int, typer.Option("--depth", "-d", min=0, help="1: tenants, 2: namespaces too, 3: topics too.")
    ] = 3,
    topic: Topics = None,
    exact: Annotated[
        bool, typer.Option("--bytes", "-b", help="Bytes as they are, for other programs.")
    ] = False,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Count the bytes of a tier: data and index objects of all attempts, read or not.

    An object's topic is in its user metadata, at a request for each pair; with records there is no such request.

    Examples:
        offload du s3://bucket/prefix
        offload du s3://bucket/prefix --json
    """
    with where.open() as tier:
        opener = records.opener(tier)
        with (
            nullcontext() if opener is None else opener() as known,
            long_work("counting", logs=True) as work,
            missing_warned_of(FoundTopics.of(topic if by is By.PLACE else None), tier.store, prefix) as seen,
        ):
            usage = measure(
                tier.store,
                by=by,
                prefix=prefix,
                records=known,
                wanted=TopicPatterns(topic) if topic else None,
                now=datetime.now(timezone.utc),
                listener=lambda count: work.update(f"{count:,} objects"),
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
        print_line(f"{shown:>10}  {count:>9,}  {'/'.join(path) or 'total'}")
