"""Each generated page, and the function that makes it."""

from pathlib import Path

from reference.commands import commands_page
from reference.completions import completions_file
from reference.manual import manual_page
from reference.metrics import metrics_page
from reference.openapi import openapi_document, rest_page

_ROOT = Path(__file__).parents[3]
_FOLDER = _ROOT / "docs" / "reference"

PAGES = {
    _FOLDER / "commands.md": commands_page,
    _FOLDER / "metrics.md": metrics_page,
    _FOLDER / "rest.md": rest_page,
    _FOLDER / "openapi.json": openapi_document,
    _FOLDER / "offload.1": manual_page,
    _ROOT / "offload_core" / "interfaces" / "cli" / "completions.tsv": completions_file,
}
