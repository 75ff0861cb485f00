from __future__ import annotations

import pytest
from gcs import PREFIX

pytestmark = pytest.mark.sampled(10)


@pytest.mark.parametrize(
    "environment", [{}, {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "true"}], ids=["unset", "true"]
)
def test_no_setting_of_gcsfs_makes_it_ask_for_more_than_objects(
    run_program, rest, bucket, front, environment
):
    program = """
        import os, sys
        from offload_drivers.gcs import GcsDriver

        before = dict(os.environ)
        driver = GcsDriver(bucket=sys.argv[1], prefix="some/tier", endpoint_url=sys.argv[2], anonymous=True)
        upload = driver.begin_data("k", "a/b", {})
        driver.commit_data(upload, [driver.write_block(upload, 1, 0, b"abc")], True)
        print(bytes(driver.read_range("k", 0, 3)))
        driver.close()
        assert os.environ == before
    """
    assert run_program(program, bucket, front.url, **environment) == "b'abc'\n"
    assert rest.get("k") == b"abc"
    objects = (f"/storage/v1/b/{bucket}/o", f"/upload/storage/v1/b/{bucket}/o")
    assert all(request.path.startswith(objects) for request in front.requests)


def test_a_forked_child_leaves_its_parents_connections_alone_and_both_end_without_a_complaint(
    run_program, fake_gcs, bucket
):
    """The parent does not close its driver."""
    program = """
        import os, sys
        from offload_drivers.gcs import GcsDriver

        driver = GcsDriver(bucket=sys.argv[1], endpoint_url=sys.argv[2], anonymous=True)
        driver.write_index("k", b"abc", "a/b", {}, True)
        child = os.fork()
        if not child:
            assert bytes(driver.read_range("k", 0, 3)) == b"abc"
            driver.close()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print(bytes(driver.read_range("k", 0, 3)))
    """
    assert run_program(program, bucket, fake_gcs.endpoint) == "b'abc'\n"


@pytest.mark.long
def test_nothing_is_asked_and_nobody_warned_by_importing_and_making_a_driver(run_program):
    program = f"""
        from offload_drivers.gcs import GcsDriver

        print(GcsDriver(bucket="b", prefix="{PREFIX}", endpoint_url="http://127.0.0.1:1").describe().location)
    """
    assert run_program(program) == f"gs://b/{PREFIX}\n"
