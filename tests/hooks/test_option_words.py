"""Options that hints of errors name: in the words of Python, the terminal and Spark; each of them is an option."""

import ast
import pickle
import re
from pathlib import Path

import pytest

from offload_core.interfaces.cli.command_options import option_words as typed
from offload_core.reading.scan.options import WORDS
from offload_hooks.errors import DataLossError, OffloadError

ROOT = Path(__file__).parents[2]
IN_BRACES = re.compile(r"\{([a-z][a-z0-9_.]*)(?:=\w+)?\}")

CASES = {
    "{fail_on_data_loss=false}": (
        "fail_on_data_loss=False",
        "--no-fail-on-data-loss",
        "failOnDataLoss=false",
    ),
    "{fail_on_data_loss=true}": ("fail_on_data_loss=True", "--fail-on-data-loss", "failOnDataLoss=true"),
    "{stop}": ("stop", "--ending-offsets", "endingOffsets"),
    "{mode=PERMISSIVE}": ("mode='PERMISSIVE'", "--mode PERMISSIVE", "mode=PERMISSIVE"),
    "{storage.region}": ("region", "--option region=…", "storage.region"),
    "{storage.anonymous=true}": ("anonymous=True", "--option anonymous=true", "storage.anonymous=true"),
    "{colour=red}": ("colour='red'", "--colour red", "colour=red"),  # of a plugin that we do not know
    "{not an option}, {} and {X}": ("{not an option}, {} and {X}",) * 3,
}


@pytest.mark.parametrize("hint", CASES)
def test_a_hint_names_options_as_its_interface_does(hint):
    pytest.importorskip("pyspark")
    from offload_core.interfaces.engines.spark.query_errors import option_words as of_spark

    python, terminal, spark = CASES[hint]
    for words, expected in ((None, python), (typed, terminal), (of_spark, spark)):
        error = DataLossError("entries are missing", hint=f"Or {hint}.")
        if words is not None:
            error = pickle.loads(pickle.dumps(error)).name_options(words)  # as a worker raises it
        assert error.hint == f"Or {expected}."
        assert str(error) == f"entries are missing. Or {expected}."
        assert error.fields()["hint"] == error.hint
    assert OffloadError("x").name_options(typed).hint is None


def test_options_in_hints_are_options():
    named = set()
    for folder in ("offload_core", "drivers", "hooks"):
        for path in (ROOT / folder).rglob("*.py"):
            if "{{" in path.read_text():
                continue  # a template
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    named |= set(IN_BRACES.findall(node.value)) if "storage." in node.value else set()
                    named |= {each for each in IN_BRACES.findall(node.value) if each in WORDS}
    assert {"fail_on_data_loss", "storage.access_key_id"} <= named
    for each in named:
        assert each in WORDS or each.startswith("storage."), each
