"""Choose how much of the tests runs: a sample, or everything with `--nightly`.

- `@pytest.mark.nightly`: the test runs with `--nightly` only.
- `@pytest.mark.long` on a test or a module: it takes seconds, so `make check` leaves it out, and a quarter of what is
  long in a module runs.
- `@pytest.mark.sampled(5)` on a test, a class or a module: a fifth of its cases runs. The day chooses the fifth, so
  five days in a row run every case; `--sample-seed` repeats another day's choice, and pytest's header shows it.
  Where both stand, it counts, not `long`.
- Of a module's tests that start a server (`server`, by `conftest.py`) and have neither mark, half runs.
- `sample(steps, every=5)`, a fixture: the same for a loop inside a test, such as the steps of a crash matrix. With
  `--nightly` it is 24 times as many: all of them, unless the stride is longer than that.
- Hypothesis draws 10 examples of each property, and 25 steps of a state machine; 250 and 50 with `--nightly`.
  `@effort(2)` draws twice as many examples, and `effort(0.4, stateful_step_count=25)` are the settings of a costly
  state machine.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

Case = TypeVar("Case")
Sample = Callable[[Sequence[Case], int], Sequence[Case]]
"""The fixture `sample`."""

_OF_A_MODULE = {"long": 4, "server": 2}
"""By mark: one of so many cases of a module runs, at least one."""

NIGHTLY_STEPS = 24
"""So many times as many steps of a loop as by day. A night that takes all of each loop would be longer than a night."""

for _name, _examples, _steps in (("sampled", 10, 25), ("nightly", 250, 50)):
    # A busy machine is no fault of a property.
    settings.register_profile(
        _name,
        max_examples=_examples,
        stateful_step_count=_steps,
        deadline=None,
        derandomize=False,
        suppress_health_check=(HealthCheck.too_slow,),
    )


def effort(factor: float, **others: object) -> settings:
    """Settings of Hypothesis with `factor` times the examples that every property has."""
    return settings(max_examples=max(1, round(factor * settings().max_examples)), **others)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("effort")
    group.addoption("--nightly", action="store_true", help="run every test, case and example")
    group.addoption("--sample-seed", type=int, help="choose the sampled cases of that day (default: today)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "nightly: a long run, with --nightly only")
    config.addinivalue_line(
        "markers", "long: takes seconds, not in `make check`; a quarter of a module's runs"
    )
    config.addinivalue_line(
        "markers", "sampled(every): one of `every` cases, others each day; all with --nightly"
    )
    if config.option.sample_seed is None:
        config.option.sample_seed = int(time.time() // 86_400)  # in UTC; pytest-xdist hands it to its workers
    settings.load_profile("nightly" if config.option.nightly else "sampled")


def pytest_report_header(config: pytest.Config) -> str:
    if config.option.nightly:
        return f"effort: every case (--nightly), --sample-seed={config.option.sample_seed}"
    return f"effort: sampled, --sample-seed={config.option.sample_seed}"


@pytest.hookimpl(trylast=True)  # after -k and -m: what they leave is sampled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.nightly:
        return
    groups: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    skipped: set[pytest.Item] = set()
    for item in items:
        if item.get_closest_marker("nightly"):
            skipped.add(item)
            continue
        groups[_group_of(item)].append(item)
    for (name, every), cases in groups.items():
        cases.sort(
            key=lambda item: crc32(item.nodeid.encode())
        )  # no stride through one of several parameters
        skipped.update(set(cases).difference(_chosen(cases, every, name, config)))
    config.hook.pytest_deselected(items=[item for item in items if item in skipped])
    items[:] = [item for item in items if item not in skipped]


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample[Case]:
    """Choose one of `every` of a sequence, others each day; with `--nightly` 24 times as many, or all."""

    def choose(of: Sequence[Case], every: int) -> Sequence[Case]:
        if request.config.option.nightly:
            every = every // NIGHTLY_STEPS
        return _chosen(of, every, request.node.nodeid, request.config)

    return choose


def _group_of(item: pytest.Item) -> tuple[str, int]:
    """The name of what an item is one case of, and of how many one runs."""
    for node, mark in item.iter_markers_with_node("sampled"):
        return _name_of(node), mark.args[0]
    for name, every in _OF_A_MODULE.items():
        if item.get_closest_marker(name):
            return f"{item.nodeid.partition('::')[0]}, {name}", every
    return item.nodeid, 1


def _name_of(node: pytest.Item | pytest.Collector) -> str:
    """The name of what bears a mark: of a parametrised test, without the case."""
    return f"{node.parent.nodeid}::{node.originalname}" if isinstance(node, pytest.Function) else node.nodeid


def _chosen(of: Sequence[Case], every: int, name: str, config: pytest.Config) -> Sequence[Case]:
    """One of `every`, at least one, another one with each seed; tests of other names begin elsewhere."""
    stride = max(1, min(every, len(of)))
    return of[(config.option.sample_seed + crc32(name.encode())) % stride :: stride]
