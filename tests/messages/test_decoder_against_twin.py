"""The kernels read of any entries what the plain twin reads: the same rows, in order, in every column."""

from __future__ import annotations

from random import Random

from drawn_entries import drawn_entry
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import ALL_COLUMNS, decoded_rows, reference_rows

RANDOM = st.integers(0, 2**40).map(Random)


def some_entries(random):
    return [drawn_entry(random) for _ in range(random.randrange(6))]


@given(RANDOM, st.booleans(), st.sampled_from([-1, 0, 3, 2**31 - 1]), st.sampled_from([0, 9, 2**40]))
def test_rows_are_those_of_the_twin(random, verify_checksums, partition, first_entry_id):
    entries = some_entries(random)
    options = {
        "verify_checksums": verify_checksums,
        "partition": partition,
        "first_entry_id": first_entry_id,
        "ledger_id": 2**40 + first_entry_id,
    }
    assert decoded_rows(entries, **options) == reference_rows(entries, **options)


@given(RANDOM)
def test_any_choice_of_columns_gives_the_same_values(random):
    entries = some_entries(random)
    columns = random.sample(ALL_COLUMNS, random.randint(1, 4))
    expected = [{name: row[name] for name in columns} for row in reference_rows(entries)]
    assert decoded_rows(entries, columns=columns) == expected
