"""Grafana's dashboard and Prometheus' alert rules: they ask for metrics that a running service has, by their kinds."""

import json
import re
import subprocess
from pathlib import Path

import promql_parser
import pytest
import yaml
from pages import blocks_of
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from required import need
from servers import install
from servers.toolchains import ToolchainMissing
from service import Service, offloading, owner
from waiting import wait_for

from offload_core.interfaces.service.offloader_metrics import TOPIC_LABELS, OffloaderMetrics
from offload_core.interfaces.service.request_guards import RequestMetrics
from offload_core.writing.managed_ledger import open_managed_ledger

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "alerts" / "pulsar-offload.yaml"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "pulsar-offload.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]

OF_PROMETHEUS = {"up": "gauge"}
OF_A_TARGET = {"job", "instance"}
OF_COUNTERS = {"rate", "increase", "irate"}


def queries():
    """All of PromQL, with the place it stands in; Grafana's own variables are filled in."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, _ = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
            yield variable["name"], metric
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]


def selectors(node, within=()):
    """Each selector of a query, with the names of the functions it is in, and whether it has a range."""
    if isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector, within, True
    elif isinstance(node, promql_parser.VectorSelector):
        yield node, within, False
    elif isinstance(node, promql_parser.Call):
        for each in node.args:
            yield from selectors(each, (*within, node.func.name))
    elif isinstance(node, promql_parser.BinaryExpr):
        yield from (*selectors(node.lhs, within), *selectors(node.rhs, within))
    elif isinstance(node, (promql_parser.AggregateExpr, promql_parser.ParenExpr)):
        yield from selectors(node.expr, within)
    else:
        assert isinstance(node, promql_parser.NumberLiteral), f"not read here: {node}"


def grouped_by(node):
    """The labels that a query's aggregations keep."""
    return {label for labels in re.findall(r"\bby \((.*?)\)", str(node)) for label in labels.split(", ")}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """The kind of each metric that a running `offload own` shows."""
    folder = tmp_path_factory.mktemp("own")
    with Service(folder, offloading(folder, service="upkeep_interval_s = 0.2"), command=("own",)) as service:
        with (
            owner(service.metadata, folder) as environment,
            open_managed_ledger(environment, "acme/n/persistent/orders") as topic,
        ):
            topic.add_entry(b"a")
        assert service.ask("GET", "/readyz").status == 200
        wait_for(lambda: 'route="/readyz"' in service.ask("GET", "/metrics").text)
        return kinds_of(service.ask("GET", "/metrics").text)


def kinds_of(text):
    found = dict(OF_PROMETHEUS)
    for family in text_string_to_metric_families(text):
        parts = {"counter": ["_total"], "gauge": [""], "summary": ["_sum", "_count"]}
        parts["histogram"] = ["_sum", "_count", "_bucket"]
        found |= {f"{family.name}{part}": family.type for part in parts[family.type]}
    return found


@pytest.fixture(scope="module")
def labels():
    """The labels of each metric, as it is declared."""
    registry = CollectorRegistry()
    counted, requests = OffloaderMetrics(registry), RequestMetrics(registry)
    found = {}
    for each in (*vars(counted).values(), *vars(requests).values()):
        if hasattr(each, "_labelnames"):
            found[each.describe()[0].name] = set(each._labelnames)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("place", "query"), list(queries()))
def test_a_query_asks_for_metrics_that_there_are_by_their_kinds(place, query, kinds, labels):
    parsed = promql_parser.parse(query)
    found = list(selectors(parsed))
    assert found
    for selector, functions, has_range in found:
        kind = kinds[selector.name]
        counts = kind == "counter" or selector.name.endswith(("_sum", "_count", "_bucket"))
        assert bool(OF_COUNTERS.intersection(functions)) == has_range
        assert place in ("job", "namespace") or counts == has_range, "rate() of counters, and of them alone"
        assert ("histogram_quantile" in functions) == selector.name.endswith("_bucket")
        base = re.sub(r"_(total|sum|count|bucket)$", "", selector.name)
        here = labels.get(base, set(TOPIC_LABELS)) | OF_A_TARGET
        if kind == "histogram":
            here |= {"le"}
        used = {matcher.name for matcher in selector.matchers.matchers}
        assert used | grouped_by(parsed) <= here


def test_the_dashboard_has_its_rows_and_nothing_overlaps():
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Offload", "Reads", "Errors", "Requests"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    sources = {each["datasource"]["uid"] for panel in PANELS for each in (panel, *panel["targets"])}
    assert sources == {"${datasource}"}, "of any Grafana, not of one"


def test_each_alert_says_what_is_wrong_how_bad_it_is_and_what_to_do():
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "description"}
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    assert re.findall(r"`(PulsarOffload\w+)`", page) == [rule["alert"] for rule in ALERTS]


@pytest.mark.nightly  # promtool takes minutes to build
@pytest.mark.server
def test_the_pages_settings_are_taken_and_each_alert_fires_when_it_should_and_not_else(tmp_path):
    tests = Path(__file__).with_name("rules_test.yaml")
    fired = set(re.findall(r'alertname="(\w+)"', tests.read_text()))
    assert fired == {rule["alert"] for rule in ALERTS}
    try:
        promtool = install.promtool()
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise
    page = blocks_of(ROOT / "docs" / "how-to" / "deploy.md", ROOT)
    (shown,) = [each.code for each in page if (each.heading, each.language) == ("Monitoring", "yaml")]
    (tmp_path / "prometheus.yaml").write_text(shown)
    for command in (
        ["check", "config", "--syntax-only", str(tmp_path / "prometheus.yaml")],
        ["check", "rules", "--lint-fatal", str(RULES)],
        ["test", "rules", str(tests)],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
