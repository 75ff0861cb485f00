from __future__ import annotations

import pytest

from offload_core.storage.tier import survey
from offload_core.storage.tier.registry import FILTERS, GROUPS, make_filter
from offload_hooks.errors import BrokenPluginError

pytestmark = pytest.mark.long

DRIVERS = "pulsar_offload.drivers"
SCHEMES = "pulsar_offload.url_schemes"
LAYERS = "pulsar_offload.layers"


def found(name, group=DRIVERS):
    return [report for report in survey() if (report.name, report.group) == (name, group)]


def test_the_built_in_driver_is_reported_as_ok():
    [report] = found("local")
    assert report.distribution == "pulsar-offload"
    assert report.target == "offload_drivers.local:LocalDriver"
    assert (report.status, report.problem) == ("ok", None)
    assert found("file", SCHEMES)[0].status == "ok"


def test_a_strangers_driver_is_reported_with_its_distribution(install, module_name, driver_source):
    entries = {DRIVERS: {"acme": f"{module_name}:Driver"}, LAYERS: {"watch": f"{module_name}:Driver"}}
    install("acme-store", entries, {module_name: driver_source}, version="9.8")
    [report] = found("acme")
    assert (report.distribution, report.version, report.status) == ("acme-store", "9.8", "ok")
    assert found("watch", LAYERS)[0].status == "ok"


def test_broken_plugins_are_reported_and_do_not_hide_the_others(install, module_name, driver_source):
    sources = {
        "import": "import no_such_library_for_offload",
        "raise": "raise RuntimeError('boom')",
        "exit": "raise SystemExit(1)",
        "new": "class Driver:\n    hook_spec_version = 99",
    }
    modules = {f"{module_name}_{name}": source for name, source in sources.items()}
    entries = {f"x-{name}": f"{module_name}_{name}:Driver" for name in sources}
    install("bad", {DRIVERS: entries}, modules)
    assert (found("x-import")[0].status, found("x-raise")[0].status) == ("missing extra", "broken")
    assert "pip install no_such_library_for_offload" in found("x-import")[0].problem
    assert "boom" in found("x-raise")[0].problem
    assert found("x-exit")[0].status == "broken"
    assert "Upgrade pulsar-offload" in found("x-new")[0].problem
    assert found("local")[0].status == "ok"


def test_a_name_offered_twice_is_broken_in_both_reports(install, module_name, driver_source):
    for name in ("a-dist", "b-dist"):
        install(name, {DRIVERS: {"same": f"{module_name}:Driver"}}, {module_name: driver_source})
    reports = found("same")
    assert [report.distribution for report in reports] == ["a-dist", "b-dist"]
    assert all(report.status == "broken" and "a-dist and b-dist" in report.problem for report in reports)


def test_a_scheme_needs_a_driver_that_reads_urls(install, module_name):
    source = "class D:\n    hook_spec_version = 1\n"
    entries = {
        DRIVERS: {"mute": f"{module_name}:D"},
        SCHEMES: {"mute": f"{module_name}:D", "odd": "json:loads"},
    }
    install("mute", entries, {module_name: source})
    assert "options_from_url" in found("mute", SCHEMES)[0].problem
    assert "no driver" in found("odd", SCHEMES)[0].problem


def test_none_of_ours_is_broken():
    ours = [report for report in survey() if report.distribution == "pulsar-offload"]
    assert {report.group for report in ours} == set(GROUPS)
    assert [report for report in ours if report.status == "broken"] == []


def test_a_filter_must_be_one(install, module_name):
    install("f", {FILTERS: {"f": f"{module_name}:make"}}, {module_name: "make = lambda: object()"})
    with pytest.raises(BrokenPluginError, match="the offload filter 'f' of f has no method 'open'"):
        make_filter("f", {})


def test_a_layer_must_be_callable(install, module_name):
    install("l", {LAYERS: {"l": f"{module_name}:THREE"}}, {module_name: "THREE = 3"})
    assert "factory" in found("l", LAYERS)[0].problem
