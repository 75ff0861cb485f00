"""The conformance suite of metadata stores: what `WritableMetadataStore` promises, as tests that an author subclasses.

    class TestMyStore(MetadataStoreConformance):
        @pytest.fixture
        def make_store(self, folder):
            return lambda: MyStore(f"my:{folder}")

See docs/metadata-stores.md.
"""

from __future__ import annotations

from offload_hooks.testing.metadata_cases.concurrency import ConcurrencyCases
from offload_hooks.testing.metadata_cases.paths import PathCases
from offload_hooks.testing.metadata_cases.sequences import MetadataSequenceCases
from offload_hooks.testing.metadata_cases.values import ValueCases


class MetadataStoreConformance(MetadataSequenceCases, ConcurrencyCases, PathCases, ValueCases):
    """Subclass it, with a name that begins with `Test`, and write the fixture `make_store`.

    The attributes of `MetadataSuiteBase` may be set: `secrets`, `one_process`, `large_bytes`, `many_children`,
    `racers`, `rounds`, `max_examples`, `steps`, `shrink`, `deadline_s`.
    """
