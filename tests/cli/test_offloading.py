"""`offload topics offload` and `delete-hot-copies`, beside the process that owns the topic."""

import signal
import subprocess
import sys

import pytest
from commands import INTERRUPTIBLE, configuration_file, opened_topic
from scenes.transactions import message
from waiting import wait_for

from offload_core.writing.managed_ledger import RolloverPolicy, TransactionalTopic

pytestmark = pytest.mark.long

TOPIC = "persistent://acme/n/orders"


@pytest.fixture
def config(tmp_path):
    return configuration_file(tmp_path)


@pytest.fixture
def topic(config):
    """Three ledgers of 100 bytes; the last one is open."""
    rollover = RolloverPolicy(max_entries=1, min_age_s=0)
    with opened_topic(config, "acme/n/persistent/orders", rollover=rollover) as (_, topic):
        for _ in range(3):
            topic.add_entry(bytes(100))
        yield topic


@pytest.fixture
def on_topic(offload, config):
    """Run a command of `offload topics` with the configuration."""
    return lambda command, *arguments: offload("topics", command, TOPIC, *arguments, "--config", config)


def test_sealed_ledgers_are_offloaded_and_the_others_named(topic, on_topic):
    first, second, third = (ledger.ledger_id for ledger in topic.read_info().in_order)
    done = on_topic("offload")
    assert done.code == 0
    assert done.out.splitlines() == [
        f"ledger {first}: offloaded",
        f"ledger {second}: offloaded",
        f"ledger {third}: not offloaded: it is open",
    ]
    again = on_topic("offload", "--json")
    assert again.json == {"offloaded": [], "skipped": {str(third): "it is open"}}
    topic.add_entry(b"the owner was not disturbed")


def test_ledgers_that_a_filter_holds_back_are_named_and_the_policies_filter_runs(config, on_topic):
    with opened_topic(config, "acme/n/persistent/orders") as (environment, managed):
        topic = TransactionalTopic(environment, managed)
        aborted, left_open = topic.begin(), topic.begin()
        topic.add_entries([message(), message(aborted)])
        topic.abort(aborted)
        managed.roll()
        topic.add_entries([message(left_open)])
        managed.roll()
        first, second = (ledger.ledger_id for ledger in managed.read_info().in_order)
        assert on_topic("set-offload-filter", "transactions", "--mode", "gap").code == 0
        done = on_topic("offload")
        assert done.code == 0
        assert done.out.splitlines() == [
            f"ledger {first}: offloaded",
            f"ledger {second}: not offloaded: waits for transaction {left_open}, open since entry {second}:0",
        ]
        drawn = on_topic("layout")
        assert "gaps for 2 of 3 entries by transactions" in " ".join(drawn.out.split())
        (cold, _) = on_topic("layout", "--json").json
        assert (cold["filter"]["filter"], cold["filter"]["dropped"][0]) == ("transactions", 2)
        again = on_topic("offload", "--json").json
        assert list(again["skipped"]) == [str(second)]


def test_the_newest_ledgers_stay_hot_up_to_a_size(topic, on_topic):
    first, second, third = (ledger.ledger_id for ledger in topic.read_info().in_order)
    done = on_topic("offload", "-s", "100", "--json").json
    assert done["offloaded"] == [first]
    assert done["skipped"].keys() == {str(second), str(third)}


def test_hot_copies_are_deleted_after_the_lag(topic, on_topic, tmp_path):
    first, second, third = (ledger.ledger_id for ledger in topic.read_info().in_order)
    on_topic("offload")
    for more, lag in ([], "14,400"), (["-l", "1h"], "3,600"):
        none = on_topic("delete-hot-copies", *more)
        assert none.out == (
            f"no hot copy is due: none was offloaded {lag} s ago or earlier; --lag sets another time\n"
        )
    dry = on_topic("delete-hot-copies", "-l", "0")
    assert dry.err == "this was a dry run: --yes does it\n"
    assert dry.code == 1
    assert dry.out == "".join(f"ledger {each}: hot copy would be deleted\n" for each in (first, second))
    would = on_topic("delete-hot-copies", "-l", "0", "--json")
    assert would.json == {"deleted": [], "would_be_deleted": [first, second]}
    assert len(list((tmp_path / "hot").glob("*.ledger"))) == 3
    assert not (tmp_path / "audit.jsonl").exists()
    deleted = on_topic("delete-hot-copies", "-l", "0", "--json", "--yes")
    assert deleted.json == {"deleted": [first, second], "would_be_deleted": []}
    assert [file.name for file in (tmp_path / "hot").glob("*.ledger")] == [f"{third}.ledger"]
    assert (tmp_path / "audit.jsonl").read_text().count("\n") == 2


def test_what_cannot_be_done_is_one_line(topic, config, on_topic, offload):
    unknown = offload("topics", "offload", "persistent://acme/n/none", "--config", config)
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("offload: there is no record of this managed ledger")
    assert on_topic("offload", "-s", "many").code == 2
    config.write_text(config.read_text().replace('driver = "local"', ""))
    without = on_topic("offload")
    assert (without.code, "no tier is configured" in without.err) == (2, True)


@pytest.fixture
def streamed(config):
    """The configuration streams its topics."""
    streaming = "[policies]\nmanagedLedgerOffloadStreaming = true"
    config.write_text(config.read_text().replace("[policies]", streaming))


def test_of_a_streamed_topic_too_a_wrong_size_is_refused_and_an_absent_owner_named(topic, streamed, on_topic):
    assert on_topic("offload", "-s", "many", "--timeout", "0").code == 2
    waited = on_topic("offload", "--timeout", "0")
    assert (waited.code, waited.out) == (1, "")
    assert "The process that has it open must run, and keep it by an UpkeepLoop" in waited.err


def test_a_streamed_topic_that_was_closed_is_offloaded_at_once(topic, streamed, on_topic):
    last = topic.last_position
    topic.close()
    done = on_topic("offload", "--timeout", "30")
    assert (done.code, done.out) == (0, f"offloaded up to {last.ledger_id}:{last.entry_id + 1}\n")
    info = topic.read_info()
    assert all(ledger.is_fully_offloaded for ledger in info.ledgers)
    assert info.properties == (), "it is nobody's again"
    assert on_topic("offload", "--timeout", "30").code == 0
    ids = [ledger.ledger_id for ledger in info.in_order]
    would = on_topic("delete-hot-copies", "-l", "0", "--json")
    assert would.json == {"deleted": [], "would_be_deleted": ids}
    deleted = on_topic("delete-hot-copies", "-l", "0", "--json", "--yes")
    assert deleted.json == {"deleted": ids, "would_be_deleted": []}


def test_ctrl_c_stops_an_offload_which_leaves_nothing_behind(topic, config, tmp_path):
    slow = "max_block_size_in_bytes = 5242880\nrate_limit_in_bytes_per_second = 1000000\n[policies."
    config.write_text(
        config.read_text().replace("extra_configurations.root", f"{slow}extra_configurations]\nroot")
    )
    topic.add_entries([bytes(1 << 20)] * 40)  # 40 s at this rate, and 5 s for a block
    topic.roll()
    command = [sys.executable, "-c", INTERRUPTIBLE, "topics", "offload", TOPIC, "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: process.poll() is not None or begun(topic), within_s=120)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert said.startswith("offload: broken off. offloading: ")
    assert said.endswith("The next call goes on.\noffload: interrupted\n")
    assert begun(topic) == []


def begun(topic):
    """The ledgers whose offload is under way."""
    ledgers = topic.read_info().in_order
    return [each for each in ledgers if each.context is not None and not each.context.complete]


def test_the_layout_draws_which_positions_lie_in_which_object(topic, on_topic, offload, config):
    assert on_topic("offload").code == 0
    drawn = on_topic("layout").out.splitlines()
    ids = [ledger.ledger_id for ledger in topic.read_info().in_order]
    assert [line.split() for line in drawn[:3]] == [
        ["ledger", str(ids[0]), "A" * 60],
        ["ledger", str(ids[1]), "B" * 60],
        ["ledger", str(ids[2]), "·"],
    ]
    assert [line.split()[:4] for line in drawn[4:]] == [
        ["A", f"{ids[0]}:0", f"{ids[0]}:0", "ledger"],
        ["B", f"{ids[1]}:0", f"{ids[1]}:0", "ledger"],
        ["·", f"{ids[2]}:0", "…", "hot"],
    ]
    parts = on_topic("layout", "--json").json
    assert [part["format"] for part in parts] == ["pip17", "pip17", None]
    assert parts[0]["object"] in drawn[4]
    unknown = offload("topics", "layout", "acme/n/nobody", "--config", config)
    assert (unknown.code, "no record of this topic" in unknown.err) == (2, True)


def test_that_nothing_is_to_be_offloaded_is_said(config, on_topic):
    with opened_topic(config, "acme/n/persistent/orders") as (_, topic):
        topic.add_entry(b"a")
    assert on_topic("offload").out.endswith(": offloaded\n")
    again = on_topic("offload")
    assert (again.code, again.out) == (0, "nothing to offload: all sealed ledgers are, or are to stay hot\n")
