"""Tables of Spark's catalogue: keep the options of `CREATE TABLE … USING pulsar_offload` where its reads find them.

Spark gives a Python source the options of a table when it is created, and none when it is read; but the reads are given
the table's schema as it was then. So the options go with the metadata of its first column. Source: docs/spark.md, SQL.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from offload_hooks.errors import OptionError

_KEPT_AS = "pulsar_offload"
_OF_CATALOGUE = ("location", "provider", "owner")
_OPTION = "option."


def options_of_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """The options that a `CREATE TABLE` has; None if these are the options of a query.

    Spark's catalogue adds words of its own, and gives options again as `option.*`: with `LOCATION` only so.
    """
    if "provider" not in options:
        return None
    written = {name[len(_OPTION) :]: text for name, text in options.items() if name.startswith(_OPTION)}
    given = {name: text for name, text in options.items() if not name.startswith(_OPTION)}
    return {name: text for name, text in (written | given).items() if name not in _OF_CATALOGUE}


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table that keeps these options.

    Raises:
        OptionError: an option may be secret: schemas are shown, and written into files.
    """
    from offload_core.metadata.policies.offload_policies import shown_value

    secret = [
        name
        for name, text in options.items()
        if not name.endswith("_file") and shown_value({name: text}) != {name: text}
    ]
    if secret:
        raise OptionError(
            "a table keeps no secrets, and these options may have some",
            expected="the credentials of the machines that plan and read: environment, roles, files",
            found=", ".join(secret),
            hint="Options of a URL are written as storage.*. CREATE TEMPORARY VIEW takes secrets, for one session.",
        )
    first, *others = schema.fields
    kept = StructField(first.name, first.dataType, first.nullable, {_KEPT_AS: dict(options)})
    return StructType([kept, *others])


def options_of_read(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options of a query; of a table, those that it keeps and over them those of the query."""
    given = options_of_table(options) or options
    if "path" in given or "driver" in given:
        return given
    kept: dict[str, str] = next((each.metadata[_KEPT_AS] for each in schema if _KEPT_AS in each.metadata), {})
    return kept | dict(given)
