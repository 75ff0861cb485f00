"""The driver `s3` in processes of its own: warnings are errors there, forks are real, obstore has never been used."""

from __future__ import annotations

import json
import textwrap

import pytest

pytestmark = pytest.mark.sampled(4)

HEAD = """
    import json, os, sys, threading
    from offload_drivers.s3 import S3Driver
    from offload_hooks import ByteRange

    driver = S3Driver(**json.loads(sys.argv[1]))
    ranges = [ByteRange(key="k", offset=0, length=3), ByteRange(key="k", offset=1, length=1)]

    def read():
        assert bytes(driver.read_range("k", 0, 3)) == b"abc"
        assert [bytes(data) for data in driver.read_ranges(ranges)] == [b"abc", b"b"]
        whole, stat = driver.read_object("k", 9), driver.stat("k")
        assert (bytes(whole.data), whole.stat.user_metadata, whole.stat.version) == (b"abc", {}, stat.version)

    def in_child(work):
        child = os.fork()
        if not child:
            work()
            driver.close()
            sys.exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 7, f"the child ended with {code}"
"""


@pytest.fixture
def run(run_program, given, boto):
    """Run a program with a driver over a bucket that has an object; its output."""
    boto.put("k", b"abc")

    def run(program, **options):
        return run_program(textwrap.dedent(HEAD) + textwrap.dedent(program), json.dumps(given | options))

    return run


def test_a_process_that_does_not_close_its_driver_ends_without_a_complaint(run):
    run("read()")


def test_a_driver_that_is_made_before_a_fork_is_used_in_the_child_alone(run):
    run("in_child(read)")


def test_a_driver_that_was_used_before_a_fork_works_in_the_child_and_on_in_the_parent(run):
    program = """
        read()
        in_child(read)
        read()
        in_child(lambda: in_child(read))
        read()
        driver.close()
        read()
        driver.close()
    """
    run(program)


def test_a_child_writes_on_what_its_parent_began(run):
    program = """
        upload = driver.begin_data("data", "a/b", {})
        first = driver.write_block(upload, 1, 0, b"a" * (5 << 20))

        def finish():
            second = driver.write_block(upload, 2, 5 << 20, b"b")
            driver.commit_data(upload, [first, second], True)

        in_child(finish)
        print(driver.stat("data").size_bytes)
        driver.close()
    """
    assert run(program) == f"{(5 << 20) + 1}\n"


def test_children_that_are_forked_while_threads_read(run):
    program = """
        stop = threading.Event()

        def go_on():
            while not stop.is_set():
                read()

        threads = [threading.Thread(target=go_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                in_child(read)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            driver.close()
    """
    run(program)


def test_obstore_reads_what_the_parent_has_not_read_by_it(run):
    program = """
        from offload_drivers.s3 import reads

        in_child(read)
        assert reads._first_user is None, "the parent may still use it"
        read()
        assert reads._first_user == os.getpid()
        driver.close()
    """
    run(program)


def test_nothing_is_asked_and_nobody_warned_by_importing_and_making_a_driver(run):
    shown = run("print(driver.describe().location)", endpoint_url="http://127.0.0.1:1")
    assert shown.startswith("s3://")
