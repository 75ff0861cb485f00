"""docs/airflow.md lists exactly the arguments of each operator, with defaults, and the settings of a connection."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "airflow.md").read_text()
PROVIDER = ROOT / "integrations" / "airflow_provider_pulsar_offload"

OPERATORS = {
    "OffloadTopicOperator": "offload",
    "OffloadedSensor": "sensor",
    "VerifyTierOperator": "verify",
    "ExportTopicsOperator": "export",
}


def class_of(module, name):
    """Read as text: Airflow is not imported into this process."""
    tree = ast.parse((PROVIDER / f"{module}.py").read_text())
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_arguments_of_an_operator_are_documented_with_their_defaults(name):
    made = next(
        node for node in class_of(OPERATORS[name], name).body if getattr(node, "name", "") == "__init__"
    )
    assert isinstance(made, ast.FunctionDef)
    arguments = {
        each.arg: None if default is None else ast.literal_eval(default)
        for each, default in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True)
        if each.arg != "offload_conn_id"
    }
    table = TEXT.partition(f"| `{name}` | Default |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.+?) \|", table, re.MULTILINE)
    assert [argument for names, _ in rows for argument in re.findall(r"\w+", names)] == list(arguments)
    for names, default in rows:
        value = arguments[re.findall(r"\w+", names)[0]]
        if default not in ("required", "none", "one of them"):
            assert default.strip("`") == f"{value}".removesuffix(".0").lower()


def test_the_settings_of_a_connection_are_documented():
    fields = [
        node.target.id
        for node in class_of("hook", "Settings").body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    table = TEXT.partition("| Name | Meaning |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    assert [name for names in rows for name in re.findall(r"\w+", names)] == fields


def test_all_classes_are_listed():
    listed = re.findall(r"^\| `(\w+)\.(\w+)` \|", TEXT, re.MULTILINE)
    assert sorted(listed) == sorted((module, name) for name, module in OPERATORS.items())
