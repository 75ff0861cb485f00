"""The mapping of relocations: lines that are only added, and what readers make of a record by it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from records import closed, copied, managed_ledger, new_copy
from tiers import uuid_of

from offload_core.metadata.records.relocations import MappingFile, Relocation, read_mapping, relocated
from offload_hooks.errors import FormatError, StoreError, UnsupportedVersionError

OLD, NEW, NEWER = uuid_of(1), uuid_of(2), uuid_of(3)
INFO = managed_ledger(closed(7, 5, copied(OLD)), closed(8, 5, copied(uuid_of(9))))
MOVED = Relocation(
    managed_ledger="t/n/persistent/a",
    copy=new_copy(NEW, 7, since_ms=1),
    replaces=(OLD,),
    done_ms=2,
    filters={7: "{}"},
)
AGAIN = replace(MOVED, copy=new_copy(NEWER, 7, since_ms=1), replaces=(NEW,), filters={})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mapping"


def test_steps_are_kept_and_a_torn_line_counts_for_nothing(path):
    with MappingFile(path) as file:
        for step, relocation in (("begin", MOVED), ("done", MOVED), ("begin", AGAIN)):
            file.add(step, relocation)
        known = file.mapped
    assert read_mapping(path) == known
    assert (known.done, known.under_way) == ((MOVED,), (AGAIN,))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert read_mapping(path).under_way == ()
    with MappingFile(path) as file:
        file.add("begin", AGAIN)
        file.add("dropped", AGAIN)
    assert path.read_bytes().startswith(whole)
    assert (read_mapping(path).done, read_mapping(path).under_way) == ((MOVED,), ())


def test_one_process_adds_to_it(path):
    with MappingFile(path), pytest.raises(StoreError, match="another process"):
        MappingFile(path)


def test_a_record_is_read_as_if_it_said_so():
    def uuids(*relocations):
        return [each.context and each.context.uuid for each in relocated(INFO, relocations).ledgers]

    assert uuids(MOVED) == [NEW, uuid_of(9)]
    assert uuids(MOVED, AGAIN) == [NEWER, uuid_of(9)]
    assert uuids(AGAIN) == [OLD, uuid_of(9)], "the record names another"
    assert uuids(MOVED, MOVED) == [NEW, uuid_of(9)]
    assert relocated(relocated(INFO, [MOVED]), [MOVED]) == relocated(INFO, [MOVED])


@pytest.mark.parametrize("line", ["x", "{}", "[]", '{"version":1}', '{"version":1,"step":"done"}'])
def test_what_is_none_is_refused(path, line):
    path.write_text(f"{line}\n")
    for read in (read_mapping, MappingFile):
        with pytest.raises(FormatError, match="mapping of relocations"):
            read(path)


def test_a_newer_one_is_refused(path):
    path.write_text('{"version":2}\n')
    with pytest.raises(UnsupportedVersionError):
        read_mapping(path)


def test_one_that_is_not_there_is_an_error(path):
    with pytest.raises(StoreError, match="cannot be read"):
        read_mapping(path)
