"""Verifications whose deep work Spark's executors do: the same findings, counts and checksums as with threads."""

from dataclasses import replace

import pytest
from damage.scenes import PAYLOADS, first_segment, second_segment
from entries import pip17_object
from tiers import lay_out

from offload_core.interfaces.engines.spark.executor import SparkExecutor
from offload_core.maintenance.verify import Code, Sealing, Verification
from offload_core.storage.executors import ThreadExecutor
from offload_core.storage.tier import open_store
from offload_core.writing.audit import FileAuditLog
from offload_hooks.errors import StoreError

pytestmark = [pytest.mark.spark, pytest.mark.sampled(6)]


@pytest.fixture
def root(tmp_path):
    """Some sound objects, two damaged ones, and one whose index cannot be read."""
    root = tmp_path / "tier"
    for number in range(12):
        written = pip17_object(PAYLOADS, ledger_id=100 + number, max_block_bytes=1000)
        if number in (3, 7):
            written = replace(written, data=written.data[:-3] + b"!" + written.data[-2:])
        if number == 9:
            written = replace(written, index=written.index[:20])
        lay_out(root, written, attempt=number)
    lay_out(root, first_segment(), attempt=20)
    lay_out(root, second_segment(), attempt=21)
    return root


def verified(tier, executor, **options):
    verification = Verification(tier, deep=True, executor=executor, **options)
    return sorted(verification, key=lambda each: (each.key or "", each.offset or 0)), verification.summary


def test_spark_finds_what_threads_find(session, root):
    with open_store(root) as tier:
        by_spark, by_threads = verified(tier, SparkExecutor(session)), verified(tier, ThreadExecutor(2))
    assert by_spark == by_threads
    assert by_spark[1].findings == {Code.MESSAGE_CHECKSUM: 2, Code.INDEX_TRUNCATED: 1}
    assert by_spark[1].deep_objects == 13


def test_what_spark_has_verified_is_sealed_here(spark, root, tmp_path):
    with open_store(root) as tier:
        sealing = Sealing(tier, FileAuditLog(tmp_path / "audit.jsonl"))
        _, summary = verified(tier, SparkExecutor(spark), sealing=sealing)
        assert (summary.sealed, summary.with_checksums) == (11, 0)
        assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 11
        found, summary = verified(tier, SparkExecutor(spark))
        assert (summary.with_checksums, len(found)) == (11, 3)


def test_what_an_executor_cannot_read_is_named(spark, root):
    """The first read of each process fails: here that of an index, there of data."""
    layer = ("fault-plan", {"faults": "fail-before read_range #1"})
    with open_store(root, layers=[layer]) as tier:
        _, summary = verified(tier, SparkExecutor(spark))
    assert 2 <= summary.failed <= 3
    assert all(isinstance(failure, StoreError) and failure.key for failure in summary.failures)
    assert summary.deep_objects + summary.failed + summary.findings[Code.INDEX_TRUNCATED] == 14
