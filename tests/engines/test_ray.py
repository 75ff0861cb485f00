"""Topics as a Dataset of Ray, read by its workers."""

import pyarrow as pa
import pytest
import ray
from tables import assert_same_rows

from offload_hooks.errors import OptionError
from pulsar_offload import OffloadedDatasource, open_tier, read_ray, scan

# Ray warns on its own account
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("default", "ignore::DeprecationWarning")]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=150 << 20, logging_level="error")
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    yield
    ray.shutdown()


def test_a_dataset_has_the_rows(session, tier, options, expected):
    found = read_ray(tier, **options)
    assert found.schema().base_schema == expected.schema
    tables = [table for table in ray.get(found.to_arrow_refs()) if table.num_rows]
    assert_same_rows(pa.concat_tables([expected.schema.empty_table(), *tables]), expected)


def test_a_topic_is_cut_into_as_many_tasks_as_ray_asks_for(tier):
    source = OffloadedDatasource(tier, "acme/cold/nobatch")
    one, many = source.get_read_tasks(1), source.get_read_tasks(3)
    assert (len(one), len(many)) == (1, 3)
    assert len(OffloadedDatasource(tier, "acme/cold/nobatch", min_partitions=3).get_read_tasks(1)) == 3
    assert source.estimate_inmemory_data_size() == sum(task.metadata.size_bytes for task in many) > 0
    with open_tier(tier) as opened:
        expected = scan(opened, "acme/cold/nobatch").to_table()
    for tasks in (one, many):
        assert_same_rows(pa.concat_tables([table for task in tasks for table in task()]), expected)


def test_a_limit_and_a_projection_have_their_rows(session, tier):
    found = read_ray(tier, "acme/cold/nobatch").select_columns(["__entryId"]).limit(3)
    assert found.take_all() == [{"__entryId": number} for number in range(3)]


def test_an_option_that_is_wrong_is_refused_where_it_is_given(tier):
    with pytest.raises(OptionError, match="there is no such isolation"):
        read_ray(tier, isolation="x")
