from __future__ import annotations

import pickle
import threading

import pytest

from offload_core.storage.tier import Tier, open_store
from offload_drivers.local import LocalDriver
from offload_hooks import BlockReceipt, ByteRange, Upload, hookimpl
from offload_hooks.errors import BrokenPluginError, ObjectNotFoundError, OptionError, RangeError
from offload_hooks.testing.forks import in_forked_child

LAYERS = "pulsar_offload.layers"


@pytest.fixture
def tier(tmp_path):
    with open_store(tmp_path / "root") as tier:
        yield tier


def lying(tmp_path, **hooks):
    """A Tier over a driver of which some hooks are replaced."""
    kind = type("Lying", (LocalDriver,), {name: hookimpl(function) for name, function in hooks.items()})
    tier = Tier(kind(str(tmp_path / "root")))
    tier.write_index("k", b"0123456789")
    return tier


def test_an_object_is_written_in_blocks_and_read_back(tier):
    upload = tier.begin_data("t/ledger-1", content_type="x/y", user_metadata={"Role": "data"})
    with pytest.raises(ObjectNotFoundError):
        tier.stat("t/ledger-1")
    second = tier.write_block(upload, 2, 4, memoryview(b"efg"))
    first = tier.write_block(upload, 1, 0, bytearray(b"abcd"))
    stat = tier.commit_data(upload, [second, first])
    assert stat == tier.stat("t/ledger-1")
    assert (stat.size_bytes, stat.content_type, stat.user_metadata) == (7, "x/y", {"role": "data"})
    assert bytes(tier.read_range("t/ledger-1", 2, 4)) == b"cdef"
    assert [found.key for found in tier.list_objects("t/")] == ["t/ledger-1"]
    assert list(tier.list_uploads()) == []


def test_what_is_read_cannot_be_written_to(tmp_path):
    tier = lying(tmp_path, read_range=lambda _, length: bytearray(length))
    view = tier.read_range("k", 0, 4)
    assert view.readonly
    assert (view.format, view.nbytes) == ("B", 4)


@pytest.mark.parametrize("given", [9, 11, 0])
def test_a_driver_that_gives_another_number_of_bytes_is_broken(tmp_path, given):
    tier = lying(tmp_path, read_range=lambda _: bytes(given))
    with pytest.raises(BrokenPluginError, match=f"read_range.*expected 10 bytes, found {given}") as caught:
        tier.read_range("k", 0, 10)
    assert (caught.value.key, caught.value.offset) == ("k", 0)
    with pytest.raises(BrokenPluginError):
        tier.read_ranges([ByteRange(key="k", offset=0, length=10)])


def receipt_of_another_block(self, upload, part_number, offset, data):
    return BlockReceipt(part_number=part_number, offset=offset, length=len(data) - 1)


@pytest.mark.parametrize(
    ("hook", "answer", "arguments", "message"),
    [
        ("read_range", lambda _: "0123456789", ("k", 0, 10), "expected bytes, found str"),
        ("read_ranges", lambda _: [], ([ByteRange(key="k", offset=0, length=2)],), "1 ranges, found 0"),
        ("stat", lambda _: 3, ("k",), "contract of stat: expected ObjectStat, found int"),
        (
            "write_block",
            receipt_of_another_block,
            (Upload(key="d", upload_id="x"), 1, 0, b"abc"),
            "contract of write_block",
        ),
    ],
)
def test_a_wrong_answer_is_refused(tmp_path, hook, answer, arguments, message):
    tier = lying(tmp_path, **{hook: answer})
    with pytest.raises(BrokenPluginError, match=message):
        getattr(tier, hook)(*arguments)


def test_a_drivers_own_way_of_many_ranges_is_used(tmp_path):
    def read_ranges(self, ranges):
        return [b"x" * wanted.length for wanted in ranges]

    tier = lying(tmp_path, read_ranges=read_ranges)
    ranges = [ByteRange(key="k", offset=0, length=2), ByteRange(key="k", offset=4, length=3)]
    assert [bytes(view) for view in tier.read_ranges(ranges)] == [b"xx", b"xxx"]


def test_many_ranges_come_in_their_order_and_at_once(tmp_path):
    meeting = threading.Barrier(4)

    def read_range(self, key, offset, length):
        meeting.wait(30)
        return LocalDriver.read_range(self, key, offset, length)

    tier = lying(tmp_path, read_range=read_range)
    ranges = [ByteRange(key="k", offset=i, length=1) for i in (3, 0, 9, 1)]
    assert [bytes(view) for view in tier.read_ranges(ranges)] == [b"3", b"0", b"9", b"1"]
    tier.close()


def test_the_first_error_of_many_ranges_is_raised(tier):
    tier.write_index("k", b"0123456789")
    bad = [ByteRange(key="k", offset=0, length=1), ByteRange(key="k", offset=0, length=99)]
    with pytest.raises(RangeError):
        tier.read_ranges([*bad, ByteRange(key="nosuch", offset=0, length=1)] * 20)
    assert tier.read_ranges([]) == []


def test_threads_end_with_the_reads_and_a_closed_tier_goes_on(tier):
    tier.write_index("k", b"0123456789")
    ranges = [ByteRange(key="k", offset=i, length=1) for i in range(9)]
    threads = threading.active_count()
    assert len(tier.read_ranges(ranges)) == 9
    assert threading.active_count() == threads
    tier.close()
    assert len(tier.read_ranges(ranges)) == 9


def test_a_forked_process_reads_with_threads_of_its_own(tier):
    tier.write_index("k", b"012345678")
    ranges = [ByteRange(key="k", offset=i, length=1) for i in range(9)]

    def read():
        assert b"".join(tier.read_ranges(ranges)) == b"012345678"

    def child():
        read()
        tier.close()

    read()
    in_forked_child(child, 60)
    read()


def test_deleting_takes_keys_and_not_one_key(tier):
    with pytest.raises(OptionError, match="sequence of keys"):
        tier.delete("ab")
    assert tier.delete([]) == 0


def test_a_tier_is_pickled_as_names_and_options(install, module_name, tmp_path, driver_source):
    layer = """
        from offload_hooks import hookimpl
        class Upper:
            def __init__(self, rest, mark):
                self.rest, self.mark = rest, mark
            @hookimpl
            def read_range(self, key, offset, length):
                data = bytes(self.rest.read_range(key=key, offset=offset, length=length))
                return data.replace(b"a", self.mark.encode())
    """
    install(
        "acme",
        {
            LAYERS: {"upper": f"{module_name}_l:Upper"},
            "pulsar_offload.drivers": {"acme": f"{module_name}:Driver"},
        },
        {module_name: driver_source, f"{module_name}_l": layer},
    )
    tier = open_store(
        "acme", root=str(tmp_path / "r"), secret_key="hunter2", layers=[("upper", {"mark": "X"})]
    )
    tier.write_index("k", b"banana")
    again = pickle.loads(pickle.dumps(tier))
    assert bytes(again.read_range("k", 0, 6)) == b"bXnXnX"
    assert repr(again) == repr(tier) == f"<Tier acme at file://{tmp_path}/r under upper>"
    assert "hunter2" not in repr(tier.__reduce__())
    assert "X" not in repr(tier.__reduce__()[1][0].layers)


def test_a_tier_made_of_an_object_cannot_be_pickled(tmp_path):
    with pytest.raises(OptionError, match="open it by name"):
        pickle.dumps(Tier(LocalDriver(str(tmp_path))))
