"""Tables on a terminal of 80 columns: names, keys and numbers stay whole, and what matters least goes first."""

import re

import pytest
from entries import entry, pip17_object
from tiers import Names, lay_out

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
TOPIC = "acme/cold/a-topic-whose-name-is-rather-long"


@pytest.fixture
def tier(tmp_path):
    names = Names(managed_ledger=TOPIC.replace("cold/", "cold/persistent/"))
    keys = [
        lay_out(
            tmp_path / "tier", pip17_object([entry(b"x")] * 5, ledger_id=number), attempt=number, names=names
        )
        for number in (7, 12_345_678)
    ]
    return tmp_path / "tier", keys


@pytest.fixture
def shown(on_a_terminal):
    def lines(*arguments, columns=80):
        return ESCAPES.sub("", on_a_terminal(*arguments, columns=columns)[1]).splitlines()

    return lines


def test_topics_are_whole_and_rows_fit(shown, tier):
    [row] = [line for line in shown("ls", tier[0]) if "acme" in line]
    assert row.startswith(f"{TOPIC}  ")
    assert len(row.rstrip()) <= 80
    assert row.split()[1:3] == ["2", "10"]
    [wide] = [line for line in shown("ls", tier[0], columns=160) if "acme" in line]
    assert len(wide.split()) > len(row.split())


def test_keys_can_be_copied_and_run_over(shown, tier):
    rows = [line for line in shown("ls", tier[0], "--ledgers") if "acme" in line]
    assert [row.split()[-1] for row in rows] == [str(key) for key in tier[1]]
    assert all(row.startswith(f"{TOPIC}  ") for row in rows)


def test_payloads_are_folded_beside_positions_that_are_not(shown, tier):
    lines = shown("cat", tier[0], "--topic", TOPIC)
    heading = next(line for line in lines if "__ledgerId" in line)
    assert heading.split() == ["__ledgerId", "__entryId", "__publishTime", "__key", "value"]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("arguments", [["cost"], ["verify"], ["du"]])
def test_tables_fit(shown, tier, arguments):
    lines = shown(*arguments, tier[0])
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 80
