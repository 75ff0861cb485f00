"""Commands over a topic of which a part has moved: what one tier lacks is said, and several are read together."""

import pytest
from scenes.moves import half_moved

TOPIC = "persistent://acme/cold/orders"


@pytest.fixture
def world(tmp_path):
    made, _ = half_moved(tmp_path)
    yield made
    made.records.store.close()


def given(world, place):
    return [str(world.folder / place), "--topic", TOPIC, "--records", f"sqlite:{world.folder}/records.db"]


@pytest.mark.parametrize(("place", "other"), [("source", "target"), ("target", "source")])
def test_commands_say_what_is_elsewhere_and_write_nothing(world, offload, place, other):
    out = world.folder / "out"
    for command in (["cat"], ["cat", "--level", "entries"], ["export", "--to", out]):
        result = offload(command[0], *given(world, place), *command[1:])
        assert (result.code, result.out) == (1, "")
        assert f"local at file://{world.folder}/{other} has it" in result.err
    assert not list(out.glob("**/*.parquet"))


@pytest.mark.long
def test_commands_read_several_tiers(world, offload):
    asked = [*given(world, "source"), "--also-tier", world.folder / "target"]
    shown = offload("cat", *asked, "--format", "jsonl")
    assert (shown.code, len(shown.out.splitlines())) == (0, len(world.entries))
    done = offload("export", *asked, "--to", world.folder / "out", "--processes", "--workers", "1")
    assert done.code == 0, done.err
    assert f"{len(world.entries)} rows" in done.err
