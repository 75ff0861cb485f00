"""The page in a real browser: what it shows, asks for, and how it is used without a mouse and in the dark."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from tiers import Names, lay_out

from offload_core.maintenance.inventory.report_contents import gather
from offload_core.maintenance.inventory.report_page import report_page
from offload_core.maintenance.verify import Verification
from pulsar_offload import open_tier

HOSTILE = (
    "<script>document.title='got in'</script>",
    "</script><img src=x onerror=document.title='got in'>",
    "<b>bold</b><a href='javascript:alert(1)'>a</a>%{x}<extra>$x$",
    '"onmouseover="document.title=1',
    "{{plotly}}{{program}}",
)
PAYLOADS = [entry(b"%05d" % i * 100) for i in range(60)]
BEGIN = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    """Topics with names that mean harm, one ordinary, a segment, and an object without its index."""
    root = tmp_path_factory.mktemp("tier")
    for i, name in enumerate(("orders", *HOSTILE)):
        names = Names(managed_ledger=f"acme/cold/persistent/{name}".replace("%", "%25"))
        for month in range(3):
            written = pip17_object(PAYLOADS[: 60 - 8 * i], ledger_id=10 * i + month)
            at = BEGIN + timedelta(days=31 * month + i)
            lay_out(root, written, attempt=10 * i + month, names=names, modified_at=at)
    segment = streaming_object([LedgerPart(ledger_id=each, blocks=[PAYLOADS]) for each in (90, 91)])
    lay_out(root, segment, attempt=90)
    lay_out(root, pip17_object(PAYLOADS, ledger_id=95), attempt=95, parts=("data",))
    return root


@pytest.fixture(scope="module")
def page(tier, tmp_path_factory):
    with open_tier(tier) as reader:
        data = gather(reader.catalogue(), f"file://{tier}", findings=Verification(reader.store), top=5)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report_page(data).html)
    return path


@pytest.fixture
def browser(chromium, page):
    chromium.prefer("light")
    chromium.resize(1200, 900)
    chromium.open(page.as_uri())
    return chromium


def texts(browser, selector):
    """The texts of all elements that it selects."""
    return browser.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


CHARTS = ["topics", "times", "growth", "map", "sizes", "ages", "problems"]


def test_it_shows_all_charts_and_asks_nobody(browser, page):
    assert browser.errors == []
    asked = {url for url in browser.requests if not url.startswith(("data:", "blob:"))}
    assert asked == {page.as_uri()}
    drawn = browser.evaluate(
        "[...document.querySelectorAll('.chart')].map(e => [e.id, !!e.querySelector('svg.main-svg')])"
    )
    assert drawn == [[f"chart-{name}", True] for name in CHARTS]
    assert browser.evaluate("document.querySelectorAll('#chart-map .bars path').length") >= 3 * 5


def test_each_chart_has_its_figures_in_a_table(browser):
    tables = browser.evaluate("[...document.querySelectorAll('table')].map(e => e.id)")
    assert tables == [f"table-{name}" for name in CHARTS if name != "growth"]
    headings = browser.evaluate(
        "[...document.querySelectorAll('table')].every(e => e.caption && e.querySelector('th[scope=col]'))"
    )
    assert headings
    rows = texts(browser, "#table-topics tbody td:first-child")
    assert len(rows) == 6
    assert rows[-1] == "1 more topics"
    assert "acme/cold/orders" in rows


def test_what_is_wrong_is_shown_with_its_place(browser):
    shown = texts(browser, "#table-problems tbody td")
    assert shown[:2] == ["error", "object.no-index"]
    assert "ledger-95" in shown[2]
    color = browser.evaluate("getComputedStyle(document.querySelector('#table-problems td.error')).color")
    assert color == "rgb(163, 22, 27)"


def test_names_that_mean_harm_are_text(browser):
    assert browser.evaluate("document.title").startswith("Offloaded topics: file://")
    shown = {row.removeprefix("acme/cold/") for row in texts(browser, "#table-map tbody td:first-child")}
    assert len(shown & set(HOSTILE)) >= 3
    assert browser.evaluate("document.querySelectorAll('main img, main script, .chart a[href]').length") == 0
    labels = texts(browser, "#chart-topics .ytick text")
    assert any(label.endswith(">a</a>%{x}<extra>$x$") for label in labels), labels
    assert browser.errors == []


def test_the_keyboard_reaches_all(browser):
    browser.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(60):
        browser.press("Tab")
        reached.append(
            browser.evaluate(
                "(({id, tagName, textContent}) => id || `${tagName} ${textContent}`)(document.activeElement)"
            )
        )
        if reached[-1] in reached[:-1]:
            break
    wanted = browser.evaluate(
        "[...document.querySelectorAll('a[href], button, [tabindex=\"0\"]')]"
        ".map(e => e.id || `${e.tagName} ${e.textContent}`)"
    )
    assert [each for each in wanted if each not in reached] == []
    assert reached[0] == "A Skip to the report"
    assert {f"chart-{name}" for name in CHARTS} <= set(reached)
    assert {"theme", "table-topics-around", "table-problems-around"} <= set(reached)
    described = browser.evaluate(
        "[...document.querySelectorAll('[tabindex=\"0\"]')].every(e => e.getAttribute('aria-label') && e.role)"
    )
    assert described


def test_enter_on_the_skip_link_goes_to_the_report(browser):
    browser.evaluate("document.querySelector('.skip').focus()")
    browser.press("Enter")
    browser.wait_for("document.activeElement.id === 'main'")


COLORS = """(() => {
    const ground = getComputedStyle(document.body).backgroundColor;
    const chart = document.querySelector('#chart-topics .main-svg').style.background;
    return [ground, chart, getComputedStyle(document.body).color, document.querySelector('#theme').ariaPressed];
})()"""


def test_dark_by_the_systems_wish_and_by_the_button(browser):
    light = browser.evaluate(COLORS)
    assert (light[0], light[3]) == ("rgb(255, 255, 255)", "false")
    browser.prefer("dark")
    browser.wait_for(f"JSON.stringify({COLORS}) !== {json.dumps(json.dumps(light, separators=(',', ':')))}")
    browser.wait_for("document.querySelector('#theme').ariaPressed === 'true'")
    dark = browser.evaluate(COLORS)
    assert dark[0] == dark[1].rstrip(";") == "rgb(20, 23, 28)"
    browser.evaluate("document.querySelector('#theme').focus()")
    browser.press(" ")
    browser.wait_for("document.querySelector('#theme').ariaPressed === 'false'")
    assert browser.evaluate(COLORS) == light
    assert browser.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_its_ground(browser, scheme):
    browser.prefer(scheme)
    ratios = browser.evaluate("""(() => {
        const root = getComputedStyle(document.documentElement);
        const light = (name) => {
            const hex = root.getPropertyValue(`--${name}`).trim().match(/[0-9a-f]{2}/g);
            const [r, g, b] = hex
                .map((x) => parseInt(x, 16) / 255)
                .map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return ['ink', 'quiet', 'link', 'error', 'warning'].flatMap(
            (name) => ['ground', 'raised'].map((on) => ratio(light(name), light(on))));
    })()""")
    assert min(ratios) >= 4.5


def test_an_empty_tier_has_a_page_too(chromium, tmp_path):
    with open_tier(tmp_path) as tier:
        page = report_page(gather(tier.catalogue(), "here"))
    path = tmp_path / "report.html"
    path.write_text(page.html)
    chromium.open(path.as_uri())
    assert chromium.errors == []
    said = chromium.evaluate("document.querySelector('#problems p').textContent")
    assert said == "None is seen. `offload verify` looks closer."
    assert chromium.evaluate("document.querySelectorAll('.chart svg.main-svg').length") >= 6


def test_nothing_runs_that_the_page_did_not_come_with(browser):
    """What would get in all the same, the policy stops."""
    browser.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=document.title=1>')")
    browser.evaluate(
        "{ const s = document.createElement('script'); s.text = 'document.title = 2'; document.body.append(s) }"
    )
    browser.evaluate("fetch('http://127.0.0.1:9/').catch(() => { window.refused = true })")
    browser.wait_for("window.refused")
    assert browser.evaluate("document.title").startswith("Offloaded topics")
    assert len([error for error in browser.errors if "Content Security Policy" in error]) >= 3
