"""Tables on a terminal of 80 columns: names, keys and numbers stay whole, and what matters least goes first."""

import json
import re

import pytest
from entries import entry, pip17_object
from tiers import Names, lay_out

pytestmark = pytest.mark.long

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


def test_lines_have_no_blanks_at_their_ends_which_would_be_empty_lines(shown, tier):
    assert [line for line in shown("ls", tier[0], "--ledgers") if line != line.rstrip()] == []


def test_text_stands_below_its_row_where_there_is_no_room(shown, tier):
    root, keys = tier
    (root / f"{keys[0]}-index").unlink()
    lines = shown("verify", root, "--topic", TOPIC)
    row = next(number for number, line in enumerate(lines) if line.startswith(TOPIC))
    assert lines[row] == f"{TOPIC}  {keys[0]}"
    assert lines[row + 1] == "  where: ledger 7"
    [wide] = [line for line in shown("verify", root, columns=160) if line.startswith(TOPIC)]
    assert wide == f"{TOPIC}  {keys[0]}  ledger 7"


def test_sentences_are_folded_between_words(shown, tier):
    root, keys = tier
    (root / f"{keys[0]}-index").unlink()
    lines = shown("verify", root)
    first = next(number for number, line in enumerate(lines) if line.startswith("What to do: "))
    assert all(len(line) <= 80 for line in lines[first : first + 3])
    [whole] = [line for line in shown("verify", root, columns=400) if line.startswith("What to do: ")]
    assert " ".join(lines[first : lines.index("", first)]) == whole


def test_columns_of_payloads_stay_and_those_beside_them_go(shown, tmp_path):
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "long"} for name in "abcdef"]}
    lay_out(tmp_path, pip17_object([entry(bytes(6))] * 2))
    arguments = ["cat", tmp_path, "--topic", "acme/cold/orders", "--schemas", json.dumps(schema)]
    heading = next(line for line in shown(*arguments) if line.startswith("a "))
    assert heading.split()[:6] == list("abcdef")
    assert len(heading) <= 80
    names = ["a", "__topic", "__messageId", "__publishTime", "__producerName", "__sequenceId"]
    asked = " ".join(shown(*arguments, "--columns", ",".join(names))).replace(":", "").split()
    assert set(names) <= set(asked)  # none of those that were asked for is left out


@pytest.mark.parametrize("arguments", [["cost"], ["verify"], ["du"]])
def test_tables_fit(shown, tier, arguments):
    lines = shown(*arguments, tier[0])
    assert max(len(line.rpartition("\r")[2]) for line in lines) <= 80
