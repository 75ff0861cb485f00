"""A run takes a sample of the tests, another one each day, and all of them with `--nightly`."""

from collections import Counter

import pytest
from hypothesis import settings

SOURCE = """
import pytest
from effort import effort
from hypothesis import given, strategies as st

@pytest.mark.sampled(4)
@pytest.mark.parametrize("second", range(2))
@pytest.mark.parametrize("case", [*range(4), pytest.param(4, marks=pytest.mark.nightly)])
def test_cases(case, second):
    pass

@pytest.mark.sampled(3)
class TestAll:
    def test_one(self): pass
    def test_two(self): pass

@pytest.mark.long
class TestQuarter:
    @pytest.mark.parametrize("each", range(4))
    def test_three(self, each): pass

@pytest.mark.server
def test_four(): pass

@pytest.mark.server
def test_five(): pass

@pytest.mark.nightly
def test_long(): pass

def test_steps(sample):
    print("steps:", *sample(range(10), every=5))
    print("more:", len(sample(range(1000), every=240)))

def test_examples():
    drawn = []
    @effort(2)
    @given(st.integers())
    def draw(value):
        drawn.append(value)
    draw()
    print("examples", len(drawn))
"""


@pytest.fixture
def run(pytester):
    """Run pytest on `SOURCE`: the names of the tests that passed, and the lines that it printed."""
    pytester.makepyfile(SOURCE)
    pytester.makeini("[pytest]\nmarkers = server")
    profile = settings.get_current_profile_name()

    def run(*options):
        done = pytester.inline_run("-p", "effort", "-s", "-v", *options)
        passed, others, failed = done.listoutcomes()
        assert (others, failed) == ([], [])
        return [report.nodeid.rpartition("::")[2] for report in passed]

    yield run
    settings.load_profile(profile)


def test_a_run_takes_the_share_of_cases_that_is_asked_for(run):
    ran = run("--sample-seed=7")
    either = ({"test_one", "test_two"}, {"test_four", "test_five"})
    assert Counter(name.partition("[")[0] for name in ran if name not in set().union(*either)) == {
        "test_cases": 2,
        "test_three": 1,
        "test_steps": 1,
        "test_examples": 1,
    }
    assert [len(names.intersection(ran)) for names in either] == [1, 1]
    assert run("--sample-seed=7") == ran


def test_as_many_days_as_the_stride_run_every_case_once(run):
    ran = Counter(name for seed in range(8, 12) for name in run(f"--sample-seed={seed}"))
    cases = [f"test_cases[{case}-{second}]" for case in range(4) for second in range(2)]
    assert [ran[case] for case in cases] == [1] * 8
    assert [ran[f"test_three[{each}]"] for each in range(4)] == [1] * 4
    assert [ran[f"test_{each}"] for each in ("one", "two", "four", "five")] == [2] * 4


def test_nightly_runs_everything(run, capsys):
    ran = run("--nightly")
    cases = [f"test_cases[{case}-{second}]" for case in range(5) for second in range(2)]
    cases += [f"test_three[{each}]" for each in range(4)]
    others = ("examples", "five", "four", "long", "one", "steps", "two")
    assert sorted(ran) == sorted([*cases, *(f"test_{each}" for each in others)])
    printed = capsys.readouterr().out
    assert "steps: 0 1 2 3 4 5 6 7 8 9" in printed
    assert "more: 100" in printed, "24 times as many as by day"
    assert "examples 500" in printed
    assert "effort: every case (--nightly)" in printed


def test_loops_and_examples_are_sampled_by_the_seed_that_the_header_shows(run, capsys):
    sampled = set()
    for seed in range(5):
        run(f"--sample-seed={seed}")
        printed = capsys.readouterr().out
        assert f"effort: sampled, --sample-seed={seed}" in printed
        assert "examples 20\n" in printed
        sampled.add(printed.partition("steps: ")[2].partition("\n")[0])
    assert sampled == {"0 5", "1 6", "2 7", "3 8", "4 9"}


def test_a_case_that_is_asked_for_by_its_name_runs(run):
    for seed in range(4):
        assert run("-k", "test_cases and 3-1", f"--sample-seed={seed}") == ["test_cases[3-1]"]
