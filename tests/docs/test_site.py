"""The documentation builds without a warning, its links lead somewhere, it loads nothing from elsewhere."""

import inspect
import os
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from public_names import CONTRACT, public_names

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    def __init__(self, text):
        super().__init__()
        self.links = []
        self.loaded = []
        self.anchors = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if values.get("id"):
            self.anchors.add(values["id"] or "")
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        address = values.get(_LOADED.get(tag, ""))
        if address and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


@pytest.mark.long
def test_every_source_page_is_built(pages, site):
    sources = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    assert {path.relative_to(site).with_suffix("") for path in pages} == sources


@pytest.mark.long
def test_relative_links_lead_to_pages_and_anchors(pages):
    broken = []
    known = {path.resolve(): page for path, page in pages.items()}
    for path, page in pages.items():
        for link in page.links:
            split = urlsplit(link)
            if split.scheme or split.netloc:
                continue
            target = (path.parent / unquote(split.path)).resolve() if split.path else path.resolve()
            if not target.is_file() or (
                split.fragment and target in known and unquote(split.fragment) not in known[target].anchors
            ):
                broken.append(f"{path}: {link}")
    assert not broken


@pytest.mark.long
def test_nothing_is_loaded_from_elsewhere(pages):
    assert not [address for page in pages.values() for address in page.loaded if urlsplit(address).netloc]


@pytest.mark.long
def test_the_site_opens_as_a_file_and_its_search_finds_pages(site, chromium):
    chromium.open((site / "index.html").as_uri(), ready="document.readyState === 'complete'")
    chromium.evaluate(
        "((field) => { field.focus(); field.value = 'quarantine';"
        " field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })"
        "(document.querySelector('input[data-md-component=search-query]'))"
    )
    found = "[...document.querySelectorAll('.md-search-result__link')].map((link) => link.href)"
    chromium.wait_for(f"{found}.length")
    links = chromium.evaluate(found)
    assert any(urlsplit(link).path == str(site / "repair.html") for link in links)
    assert all(Path(unquote(urlsplit(link).path)).is_file() for link in links)
    assert chromium.errors == []
    assert [each for each in chromium.requests if not each.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.long
@pytest.mark.parametrize("module", ["pulsar_offload", *CONTRACT])
def test_the_reference_has_each_public_name_with_its_signature_and_summary(module, pages, site):
    paths = [site / "reference" / f"{name}.html" for name in ("python", "plug-in-contract")]
    anchors = {each for path in paths for each in pages[path].anchors}
    text = " ".join(unescape(re.sub("<[^>]+>", "", path.read_text())) for path in paths)
    text = re.sub(r"\s+", " ", text)
    given = import_module(module)
    for name in {*public_names(given)} - {"__version__"}:
        value = getattr(given, name)
        place = f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', '')}"
        assert anchors & {f"{module}.{name}", place}, name
        if inspect.isfunction(value):
            assert f"{name}(" in text
        if inspect.isroutine(value) or inspect.isclass(value):
            summary = (inspect.getdoc(value) or "").partition("\n\n")[0]
            assert " ".join(re.sub("`", "", summary).split()) in text, name


def test_the_list_of_decisions_has_their_titles():
    pages = sorted((DOCS / "adr").glob("0*.md"))
    titles = [path.read_text().partition("\n")[0].removeprefix("# ").partition(": ")[::2] for path in pages]
    rows = re.findall(
        r"^\| \[(\d{4})\]\(.*\) \| (.*) \|$", (DOCS / "adr" / "index.md").read_text(), re.MULTILINE
    )
    assert rows == titles


def test_pages_that_docstrings_name_exist():
    sources = [
        path
        for folder in ("offload_core", "hooks", "drivers", "proto")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".proto")
    ]
    named = {page for path in sources for page in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())}
    assert named
    assert not [page for page in named if not (ROOT / page).is_file()]


def test_the_sections_say_of_which_kind_their_pages_are_and_no_page_is_missing():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    kinds = re.findall(r"^  - ([\w-]+)(?:, [\w -]+)?:$", nav, re.MULTILINE)
    assert len(kinds) == len(re.findall(r"^  - ", nav, re.MULTILINE))
    assert list(dict.fromkeys(kinds)) == ["Start", "Tutorials", "How-to", "Reference", "Explanation"]
    assert kinds == sorted(kinds, key=list(dict.fromkeys(kinds)).index)
    listed = re.findall(r"([\w/-]+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


_SAID_BY_THEIR_INDEX = ("adr/", "formats/", "gallery/")
"""Folders of pages of one kind: the index says for all of them whom they serve."""


def test_each_page_begins_with_whom_it_serves_and_what_they_get():
    nav = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    expected = [
        name for name in nav if not name.startswith(_SAID_BY_THEIR_INDEX) or name.endswith("index.md")
    ]
    begins = re.compile(r"# [^\n]+\n\n\*For [^\n*:]+: [^\n*]+\.\*\n\n")
    assert len(expected) > 60
    assert [name for name in expected if not begins.match((DOCS / name).read_text())] == []
