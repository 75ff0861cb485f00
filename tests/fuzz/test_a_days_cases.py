"""Some cases of one of the two families of kernels; most of the time goes into compiling them with bounds checks."""

from pathlib import Path

import pytest
from bounds_checked import run_checked


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("module", "cases"),
    [("test_byte_kernels", 600), pytest.param("test_schema_kernels", 40, marks=pytest.mark.nightly)],
)
def test_kernels_stay_within_bounds(module, cases, pytestconfig):
    """Other cases each day; `--sample-seed` repeats a day's."""
    seed = cases * pytestconfig.option.sample_seed
    run_checked(Path(__file__).with_name(f"{module}.py"), seed=seed, cases=cases, processes=1)
