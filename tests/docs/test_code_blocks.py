"""Every code block of the documentation runs: each page's in order, in a folder of its own.

A drawing or a list of files is a block of `text`, and stored bytes are compared by `test_format_pages.py`. What needs a
platform that cannot run here says so in its title, "Not run here: …", to readers as to this; `NOT_RUN` lists all of
these. Any other block that nothing runs fails.
"""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from pages import NOT_RUN_HERE, World, blocks_of, run, title_says_not_run

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

NO_CODE = ("text", "bytes")

RUN_ELSEWHERE = {
    ("docs/write-a-driver.md", "In ten minutes"): "tests/docs/test_strangers_paths.py",
    ("docs/write-a-plugin.md", "A filter in twenty minutes"): "tests/docs/test_strangers_paths.py",
    ("docs/how-to/deploy.md", "Kubernetes"): "tests/deploy/test_chart.py",
    ("docs/how-to/deploy.md", "Monitoring"): "tests/deploy/test_monitoring.py",
}
"""By page and heading, the test that runs what stands there in an environment of its own."""

NOT_RUN = {
    ("docs/how-to/clusters.md", "An environment to take along", "it downloads packages"): 1,
    ("docs/how-to/clusters.md", "EMR", "it needs an EMR cluster"): 1,
    ("docs/how-to/clusters.md", "EMR", "it needs EMR Serverless"): 1,
    ("docs/how-to/clusters.md", "Dataproc", "it needs Dataproc"): 2,
    ("docs/how-to/clusters.md", "Databricks", "it needs Databricks"): 2,
    ("docs/how-to/clusters.md", "Kubernetes", "it needs Docker and a registry of images"): 1,
    ("docs/how-to/clusters.md", "Kubernetes", "it needs Kubernetes"): 1,
    ("docs/how-to/clusters.md", "Operators' commands on a cluster", "it needs YARN"): 1,
    ("docs/how-to/deploy.md", "The image", "it needs Docker and a registry of images"): 1,
    ("docs/how-to/deploy.md", "A try-out with Docker Compose", "it needs Docker"): 1,
    ("docs/how-to/deploy.md", "Kubernetes", "it needs Kubernetes"): 1,
}
"""How many blocks of a page and heading cannot run here, and why."""


def is_run(block):
    return (
        block.language not in NO_CODE
        and not title_says_not_run(block)
        and (block.page, block.heading) not in RUN_ELSEWHERE
    )


BLOCKS = {path: [block for block in blocks_of(path, ROOT) if is_run(block)] for path in PAGES}


@pytest.fixture
def world(tmp_path, request, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    made = World(tmp_path, request.getfixturevalue)
    os.environ.update(made.settings)
    yield made
    made.close()
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.sampled(24)
@pytest.mark.parametrize(
    "path",
    [path for path in PAGES if BLOCKS[path]],
    ids=lambda path: path.relative_to(ROOT).with_suffix("").as_posix(),
)
def test_the_blocks_of_a_page_run(path, world, monkeypatch):
    names = {}
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for block in BLOCKS[path]:
        try:
            run(block, world, names)
        except BaseException as error:
            error.add_note(f"in {block}")
            raise


def test_blocks_that_cannot_run_here_are_those_of_clouds_and_containers():
    blocks = [block for path in PAGES for block in blocks_of(path, ROOT) if title_says_not_run(block)]
    assert (
        Counter((block.page, block.heading, block.title.removeprefix(NOT_RUN_HERE)) for block in blocks)
        == NOT_RUN
    )


def test_what_is_run_elsewhere_is_there_and_is_run():
    places = {(block.page, block.heading) for path in PAGES for block in blocks_of(path, ROOT)}
    for place, test in RUN_ELSEWHERE.items():
        assert place in places
        assert Path(place[0]).name in (ROOT / test).read_text()


# --- what runs them ------------------------------------------------------------------------------


def page(folder, text):
    path = folder / "page.md"
    path.write_text(text)
    return blocks_of(path, folder)


def test_blocks_are_found_with_their_place_heading_and_title(tmp_path):
    text = '# A\n\n```python\n# no heading\n```\n\n1. x\n\n    ```console title="Not run here: a cloud"\n'
    text += "    $ ls\n    ```\n"
    first, second = page(tmp_path, text)
    assert (first.line, first.heading, first.language, first.code) == (3, "A", "python", "# no heading\n")
    assert (second.line, second.heading, second.code) == (9, "A", "$ ls\n")
    assert not is_run(second)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("```\n$ offload\n```\n", "the language ''"),
        ("```yaml\na: b\n```\n", "the language 'yaml'"),
        ('```console title="Not run here: "\n$ kubectl get pods\n```\n', "nothing here runs kubectl"),
        ('```console title="In a shell"\n$ rm -rf tier\n```\n', "nothing here runs rm"),
        ("```console\noffload ls\n```\n", "no command begins"),
        ("```console\n$ offload ls nowhere\n```\n", "offload ls nowhere"),
        ("```console\n$ offload verify s3://bucket/damaged\n```\n", "object.no-index"),
        ("```console\n$ offload verify s3://bucket/damaged\nnothing is wrong\n```\n", "verify"),
        ("```console\n$ pip install '.[nothing]'\n```\n", "nothing"),
        ("```console\n$ offload config show\nanother line\n```\n", "config show printed"),
        ("```python\nassert tier is None, 'no tier'\n```\n", "no tier"),
        ("```python\nunknown\n```\n", "unknown"),
        ("```json\n{\n```\n", "Expecting"),
        ("```toml\n[\n```\n", "at line"),
        ("```sql\nSELECT 1 WHERE false\n```\n", "no rows"),
    ],
)
def test_a_block_that_is_not_right_or_that_nothing_runs_fails(block, reason, world, tmp_path):
    (found,) = page(tmp_path, block)
    assert is_run(found)
    with pytest.raises(Exception, match=re.escape(reason)):
        run(found, world, {})
