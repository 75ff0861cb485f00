"""The page of each driver has the options that its constructor has, with their defaults and Pulsar's names."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from offload_drivers.azure import AzureDriver
from offload_drivers.gcs import GcsDriver
from offload_drivers.hdfs import HdfsDriver
from offload_drivers.pulsar_filesystem import FilesystemDriver
from offload_drivers.s3 import S3Driver

PAGES = Path(__file__).parents[2] / "docs" / "drivers"


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("s3", S3Driver),
        ("gcs", GcsDriver),
        ("azure", AzureDriver),
        ("hdfs", HdfsDriver),
        ("filesystem", FilesystemDriver),
    ],
)
def test_the_page_has_every_option_with_its_default_and_pulsars_names(name: str, driver: type) -> None:
    section = (PAGES / f"{name}.md").read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    rows = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            rows |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[1:])
    options = inspect.signature(driver).parameters
    assert list(rows) == list(options)
    for option, (default, pulsars, meaning) in rows.items():
        assert meaning
        wanted = options[option].default
        if isinstance(wanted, bool | int | float):
            told = str(wanted).lower() if isinstance(wanted, bool) else f"{wanted:g}"
            assert default.strip("`") == told, option
        aliases = {alias for alias, of in driver.option_aliases.items() if of == option}
        assert set(re.findall("`(.*?)`", pulsars)) <= aliases <= set(re.findall("`(.*?)`", pulsars + meaning))
