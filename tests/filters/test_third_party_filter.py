"""The example of a filter by a third party, as its own distribution declares it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tomllib
from commands import install_into
from entries import entry
from scenes.filters import FilteredTopic, short_record

from offload_core.format.messages.entry import NewMessage, pack_entry
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.storage.tier import survey
from offload_core.storage.tier.registry import make_filter
from offload_hooks.errors import FormatError, OptionError
from offload_hooks.ledger_stores import EntryBatch

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_filter"
KEEP_TO = "import sys; sys.path.insert(0, sys.argv[1]); "

DEBUG, INFO, NONE = {"level": "debug"}, {"level": "info"}, {"other": "debug"}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The distribution's metadata and source on `sys.path`, as an editable install has them."""
    project = tomllib.loads(EXAMPLE.joinpath("pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "pulsar_offload_property_filter-0.1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in each.items()) for group, each in groups]
    info.joinpath("entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.syspath_prepend(info.parent)
    yield project
    sys.modules.pop("offload_property_filter", None)


def sent(*messages):
    return pack_entry(
        [NewMessage(value=b"x" * 50, properties=each) for each in messages],
        producer_name="shop",
        sequence_id=0,
        publish_time_ms=1,
    )


def looked(offload_filter, *payloads):
    opened = offload_filter.open(None)
    return list(memoryview(opened.look(1, EntryBatch.of(0, payloads))).cast("B").cast("i"))


def test_it_is_found_and_reported_as_working(installed):
    reports = [report for report in survey() if report.distribution == installed["name"]]
    assert [(report.name, report.status) for report in reports] == [("without-property", "ok")]


def test_an_entry_goes_if_all_its_messages_have_the_property(installed):
    entries = [sent(DEBUG), sent(INFO), sent(NONE), sent(DEBUG, DEBUG), sent(DEBUG, INFO), sent(DEBUG, NONE)]
    by_value = make_filter("without-property", {"name": "level", "value": "debug"})
    assert looked(by_value, *entries) == [1, 0, 0, 1, 0, 0]
    by_name = make_filter("without-property", {"name": "level"})
    assert looked(by_name, *entries) == [1, 1, 0, 1, 1, 0]


def test_what_it_cannot_read_it_keeps(installed):
    by_name = make_filter("without-property", {"name": "level"})
    properties = [("level", "debug")]
    assert looked(by_name, entry(b"x", properties=properties)) == [1]
    chunk = entry(b"x", properties=properties, num_chunks_from_msg=2, chunk_id=0, uuid="u")
    assert looked(by_name, chunk) == [0]
    with pytest.raises(FormatError) as caught:
        looked(by_name, sent(DEBUG), b"not of Pulsar")
    assert (caught.value.ledger_id, caught.value.entry_id) == (1, 1)


def test_it_needs_the_propertys_name(installed):
    with pytest.raises(OptionError, match="needs the option 'name'"):
        make_filter("without-property", {})


@pytest.mark.parametrize("mode", FilterMode)
def test_a_topic_is_offloaded_without_them(installed, tmp_path, mode):
    topic = FilteredTopic(
        tmp_path / "cold", mode=mode, filter=make_filter("without-property", {"name": "level"})
    )
    for each in (DEBUG, NONE, INFO, NONE):
        topic.topic.add_entries([sent(each)])
    topic.do("|")
    topic.offload()
    (ledger,) = topic.ledgers
    found, added = topic.cold(ledger), [payload for _, payload in topic.hot_entries()]
    assert {i: found[i] for i in (1, 3)} == {1: added[1], 3: added[3]}
    assert list(found) == ([0, 1, 2, 3] if mode is FilterMode.TOMBSTONE else [1, 3])
    record = short_record(ledger)
    assert (record.kept.entries, record.total_dropped.entries) == (2, 2)


@pytest.mark.install
def test_it_can_be_installed_with_pip(tmp_path):
    target = tmp_path / "target"
    install_into(target, EXAMPLE)
    made = "make_filter('without-property', {'name': 'a'})"
    code = f"{KEEP_TO}from offload_core.storage.tier.registry import make_filter; print({made}.causes)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "('property a',)"
