"""The conformance suite: all that a driver promises by the hooks, as tests that its author subclasses.

    class TestMyDriver(DriverConformance):
        @pytest.fixture
        def make_driver(self, bucket):
            return lambda: MyDriver(bucket=bucket)

        @pytest.fixture
        def back_door(self, bucket):
            return MyBackDoor(bucket)

The cases call through pluggy, as the program does. A capability that the driver declares is judged; one that it does
not declare is skipped by name. See docs/conformance.md.
"""

from __future__ import annotations

from offload_hooks.testing.cases.bad_keys import BadKeyCases
from offload_hooks.testing.cases.committing import CommittingCases
from offload_hooks.testing.cases.create_only import CreateOnlyCases
from offload_hooks.testing.cases.deleting import DeletingCases
from offload_hooks.testing.cases.describing import DescribingCases
from offload_hooks.testing.cases.listing import ListingCases
from offload_hooks.testing.cases.metadata import MetadataCases
from offload_hooks.testing.cases.processes import ProcessCases
from offload_hooks.testing.cases.reading import ReadingCases
from offload_hooks.testing.cases.sequences import SequenceCases
from offload_hooks.testing.cases.stale_uploads import StaleUploadCases
from offload_hooks.testing.cases.uploading import UploadingCases


class DriverConformance(
    SequenceCases,
    ProcessCases,
    StaleUploadCases,
    BadKeyCases,
    DeletingCases,
    ListingCases,
    ReadingCases,
    MetadataCases,
    CreateOnlyCases,
    CommittingCases,
    UploadingCases,
    DescribingCases,
):
    """Subclass it, with a name that begins with `Test`, and write the fixtures `make_driver` and `back_door`.

    The attributes of `SuiteBase` may be set: `secrets`, `own_keys`, `many_keys`, `racers`, `races`, `max_examples`,
    `steps`, `shrink`, `deadline_s`, `clock_skew_s`.
    """
